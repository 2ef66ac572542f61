"""What a restore takes from the record of an environment, however damaged that is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.workspace import MINOR, Workspace

from torchenv.actions.restore import read_minor


@pytest.mark.parametrize(
    "plan",
    [b"", b"\xff", b"{}", b"[]", b'{"python": {"version": 3, "free_threaded": false}}', b"[" * 100_000],
)
def test_a_plan_that_cannot_be_read_keeps_no_environment_from_being_rebuilt(
    workspace: Workspace, plan: bytes
) -> None:
    built = workspace.built()
    path: Path = workspace.store.plan_path(built.number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(plan)
    assert read_minor(built, workspace.store) == ".".join(MINOR.split(".")[:2])
    path.write_text('{"python": {"version": "3.14.2", "free_threaded": true}}')
    assert read_minor(built, workspace.store) == "3.14t"
