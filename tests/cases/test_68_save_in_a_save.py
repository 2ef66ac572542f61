"""Case 68: a trainer's save holds a save of DeepSpeed; one shard of the newest is cut short."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.checkpoints.scan.test_scan import NEW, OLD, scanned
from tests.checkpoints.support import DATA
from tests.support.terminal import Terminal
from tests.support.workspace import write_venv

from torchenv.checkpoints.scan.runs import Judge, run_line, runs_of

ROOT = DATA / "inputs" / "68" / "experiments"


def test_a_save_in_a_save_is_one_and_complete_when_all_of_it_is() -> None:
    index = scanned(ROOT)
    judge = Judge(index, [OLD, NEW], "linux", lambda *_: "2.3.0")
    (run,) = runs_of(index, lambda path: path.removeprefix(f"{ROOT}/"))
    line = run_line(run, judge)

    assert run.path == "tiny-2026"
    assert [(save.name, save.step, save.complete) for save in run.saves] == [
        ("checkpoint-100", 100, True),
        ("checkpoint-132", 132, False),
    ]
    assert line.newest == "checkpoint-100"
    assert line.newest_readable == {1: "checkpoint-100", 2: "checkpoint-100"}
    assert line.broken == ("checkpoint-132",)


def test_the_scan_and_the_rollback_name_the_one_before(tmp_path: Path) -> None:
    terminal = Terminal.within(tmp_path)
    for torch in ("2.14.1+cu126", "2.15.0+cu132"):
        write_venv(tmp_path / torch, {"torch": torch})
        assert terminal.type("adopt", tmp_path / torch).code == 0
    assert terminal.type("use", "2").code == 0
    shutil.copytree(ROOT, terminal.cwd / "experiments")
    found = terminal.type("checkpoints", "scan", "experiments", "--json").json["checkpoints"]
    assert {line["run"] for line in found} == {"experiments/tiny-2026"}
    (broken,) = [line["path"] for line in found if line["state"] != "complete"]
    cut = "checkpoint-132/global_step132/zero_pp_rank_1_mp_rank_00_model_states.pt"
    assert broken == f"experiments/tiny-2026/{cut}"

    rolled = terminal.type("rollback", "--json")
    assert "experiments/tiny-2026: newer than checkpoint-100 but incomplete: checkpoint-132\n" in rolled.err
    (run,) = rolled.json["checkpoints"]
    assert run["run"] == "experiments/tiny-2026"
    assert run["newest_readable"] == "experiments/tiny-2026/checkpoint-100"
