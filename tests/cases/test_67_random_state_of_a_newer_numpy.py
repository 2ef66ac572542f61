"""Case 67: a random state that numpy 2 wrote, and an environment with a numpy that cannot read it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.checkpoints.scan.test_scan import NEW, OLD, scanned
from tests.checkpoints.support import DATA
from tests.support.terminal import Terminal
from tests.support.workspace import write_venv

from torchenv.checkpoints.scan.runs import Judge, run_line, runs_of

ROOT = DATA / "inputs" / "67" / "runs"


@pytest.mark.parametrize(
    ("numpy", "verdict", "newest"),
    [
        ("1.25.2", "unreadable", None),
        (None, "unknown", None),
        ("1.26.4", "readable-with-code", "checkpoint-500"),
    ],
)
def test_the_numpy_of_an_environment_decides_with_torch(
    numpy: str | None, verdict: str, newest: str | None
) -> None:
    index = scanned(ROOT)
    versions = {(1, "numpy"): numpy, (2, "numpy"): "2.3.0"}
    judge = Judge(index, [OLD, NEW], "linux", lambda environment, name: versions[environment.number, name])
    (run,) = runs_of(index, lambda path: path)
    found = {Path(part.path).name: part.found for part in run.saves[0].parts}

    assert judge.of(found["rng_state.pth"], OLD) == verdict
    assert judge.of(found["rng_state.pth"], NEW) == "readable-with-code"
    assert run_line(run, judge).newest_readable.get(1) == newest
    assert run_line(run, judge).newest_readable[2] == "checkpoint-500"
    assert run_line(run, judge).lacks == ({1: "numpy>=1.26"} if verdict == "unreadable" else {})
    assert judge.reader(found["rng_state.pth"]).as_json()["packages"] == {"numpy": ">=1.26"}


def test_a_scan_and_a_rollback_say_so_of_environments_on_the_disk(tmp_path: Path) -> None:
    terminal = Terminal.within(tmp_path)
    for torch, numpy in (("2.14.1+cu126", "1.25.2"), ("2.15.0+cu132", "2.3.0")):
        write_venv(tmp_path / torch, {"torch": torch, "numpy": numpy})
        assert terminal.type("adopt", tmp_path / torch).code == 0
    assert terminal.type("use", "2").code == 0
    shutil.copytree(ROOT, terminal.cwd / "runs")
    assert " reads it with code\n" in terminal.type("checkpoints", "scan", "runs").out
    shown = terminal.type("checkpoints", "show", "runs").out
    assert ": readable-with-code: call `torch.serialization.add_safe_globals([" in shown
    assert ", or use weights_only=False\n" in shown
    assert "  read by torch 2.2 and newer, numpy>=1.26 (confirmed)\n" in shown
    found = terminal.type("checkpoints", "scan", "runs", "--json").json["checkpoints"]
    (state,) = [line for line in found if line["path"].endswith("rng_state.pth")]
    assert state["environments"] == {"1": "unreadable", "2": "readable-with-code"}
    assert state["reader"]["packages"] == {"numpy": ">=1.26"}

    switched = terminal.type("rollback", "--json")
    assert "checkpoint-500 cannot be read by environment 1 (2.14.1-cu126-" in switched.err
    assert "(it needs numpy>=1.26); no checkpoint in this run is readable" in switched.err
    (run,) = switched.json["checkpoints"]
    assert run["newest_readable"] is None
