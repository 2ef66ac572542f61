"""A gate holds back what an older torch could not go on from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.checkpoints.support import archive, call
from tests.support.checkpoints import LONG_AGO, save
from tests.support.workspace import Workspace

from torchenv.actions.downgrade import DowngradeTarget, downgrade
from torchenv.actions.gate import Gate, check_gate
from torchenv.actions.lifeboat import keep

TARGET = DowngradeTarget(torch="2.14", python="3.11.7", system="linux")


def gate(workspace: Workspace, *, oldest: timedelta | None = None, days: int = 0) -> Gate:
    """Look `days` after the saves were made."""
    now = datetime.fromtimestamp(LONG_AGO, UTC) + timedelta(days=days)
    roots = [str(workspace.directory / "runs")]
    return check_gate(roots, workspace.store, TARGET, oldest=oldest, now=now)


@pytest.fixture
def run(workspace: Workspace) -> Path:
    run = workspace.directory / "runs" / "a"
    save(run / "step-100", "dcp-2.14.1")
    return run


def test_a_run_whose_newest_save_is_read_there_passes(workspace: Workspace, run: Path) -> None:
    save(run / "step-200", "dcp-nometa")
    assert gate(workspace) == Gate(runs=1, findings=())


def test_a_newest_save_in_the_new_form_is_held_back_until_there_is_a_copy(
    workspace: Workspace, run: Path
) -> None:
    step = save(run / "step-200", "dcp-2.15.0")
    (finding,) = gate(workspace).findings
    assert (finding.code, finding.path) == ("unreadable", "runs/a/step-200")
    assert finding.message.startswith("torch 2.14 cannot read it: ")
    downgrade(str(step), TARGET, progress=lambda *_: None)
    assert gate(workspace).findings == ()


def test_classes_of_the_users_own_hold_nothing_back(workspace: Workspace, run: Path) -> None:
    (run / "checkpoint-300").mkdir()
    (run / "checkpoint-300" / "args.bin").write_bytes(archive(call("mine", "Arguments", "x")))
    assert gate(workspace).findings == ()


def test_a_lifeboat_must_be_there_and_no_older_than_the_profile_allows(
    workspace: Workspace, run: Path
) -> None:
    workspace.adopted(workspace.directory / "old")
    week = timedelta(days=7)
    (none,) = gate(workspace, oldest=week).findings
    assert (none.code, str(none)) == (
        "no-lifeboat",
        "no lifeboat that torch 2.14 reads; keep one: see `torchenv help checkpoints keep`",
    )
    keep(str(run / "step-100"), workspace.store, copy=False, system="linux", progress=lambda *_: None)
    assert gate(workspace, oldest=week, days=6).findings == ()
    (old,) = gate(workspace, oldest=week, days=8).findings
    assert (old.code, old.message) == (
        "lifeboat-old",
        "the newest lifeboat was saved 8 days ago, and the profile allows 7 days",
    )
