"""A report on a workspace with two environments, a switch, a run and a lifeboat."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.plan.hosts import recorded

from torchenv.environment.base_python import BasePython
from torchenv.render.report import ReportData
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Kept, Proof, Run

NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)


@pytest.fixture
def standing() -> ReportData:
    manifest, _ = Manifest().adopt(
        "2.14.1-cu126-py3.12",
        path=Path("/p/.venv"),
        python=BasePython("3.12.7", "/usr/bin/python3.12"),
        at=NOW,
        torch="2.14.1+cu126",
        reads="dcp<=2.14",
    )
    manifest, new = manifest.begin(
        "2.15.0-cu132-py3.12",
        within=Path("/p/.torchenv/envs"),
        python=BasePython("3.12.7", "/usr/bin/python3.12"),
        at=NOW,
        torch="2.15.0+cu132",
        reads="dcp<=2.15",
    )
    manifest, _ = manifest.commit(new)
    proof = Proof(
        at=NOW,
        passed=True,
        what="smoke",
        host="node7",
        devices=("NVIDIA L40",),
        git="0123456789abcdef0123456789abcdef01234567",
    )
    manifest = manifest.record_check(2, proof).use(2, why="use", at=NOW)
    manifest = manifest.record_runs([Run(path="runs/a", newest="step-200", newest_readable={1: "step-100"})])
    manifest = manifest.keep(Kept(path="runs/a/step-100", readable_by=(1, 2)))
    return ReportData(at=NOW, root="/p/.torchenv", host=recorded("cpu-only-linux"), manifest=manifest)
