"""Case 67: a random state that numpy 2 wrote, and an environment with a numpy that cannot read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.checkpoints.scan.test_scan import NEW, OLD, scanned
from tests.checkpoints.support import DATA

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
    assert judge.reader(found["rng_state.pth"]).as_json()["packages"] == {"numpy": ">=1.26"}
