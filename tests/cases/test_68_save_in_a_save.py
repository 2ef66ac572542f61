"""Case 68: a trainer's save holds a save of DeepSpeed; one shard of the newest is cut short."""

from __future__ import annotations

from tests.checkpoints.scan.test_scan import NEW, OLD, scanned
from tests.checkpoints.support import DATA

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
