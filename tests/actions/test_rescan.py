"""What is said of checkpoints is what is there now, or says how old it is."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
from tests.support.checkpoints import save
from tests.support.workspace import Workspace

from torchenv.actions.checkpoints import scan_and_record
from torchenv.actions.rescan import Rescan, find_roots, rescan
from torchenv.errors import WorkspaceError
from torchenv.storage import place
from torchenv.storage.local import LocalPlace
from torchenv.storage.tree import Tree
from torchenv.workspace.store import Store


def look(
    workspace: Workspace,
    named: Sequence[Path] = (),
    *,
    record: bool = True,
    later: float = 0.0,
    step: float = 0.0,
) -> Rescan:
    """Look again `later` seconds after the last scan, with a clock that goes on by `step` at each look."""
    ticks = count()
    index = workspace.store.index_path
    now = index.stat().st_mtime if index.exists() else 0.0
    return rescan(
        tuple(map(str, named)),
        workspace.store,
        system="linux",
        record=record,
        now=now + later,
        clock=lambda: next(ticks) * step,
    )


@pytest.fixture
def runs(workspace: Workspace) -> Path:
    """A scanned root with the runs a and b, in a workspace with torch 2.14.1 and 2.15.0."""
    workspace.adopted(workspace.directory / "old")
    workspace.built()
    runs = workspace.directory / "runs"
    save(runs / "a" / "step-100", "dcp-2.14.1")
    save(runs / "b" / "step-5", "dcp-2.14.1")
    scan_and_record([place(runs)], workspace.store, whole=True, system="linux", say=lambda _: None)
    return runs


def test_a_save_made_after_the_last_scan_is_the_newest(workspace: Workspace, runs: Path) -> None:
    save(runs / "a" / "step-200", "dcp-2.15.0")
    seen = look(workspace)
    assert seen.notes == ()
    assert [run.newest for run in seen.runs] == ["step-200", "step-5"]
    assert seen.runs[0].newest_readable == {1: "step-100", 2: "step-200"}
    assert workspace.store.read().runs == seen.runs


def test_a_run_that_was_deleted_is_forgotten(workspace: Workspace, runs: Path) -> None:
    shutil.rmtree(runs / "b")
    assert [run.path for run in look(workspace).runs] == ["runs/a"]
    assert [run.path for run in workspace.store.read().runs] == ["runs/a"]


def test_a_root_that_is_gone_is_said_and_found_again(workspace: Workspace, runs: Path) -> None:
    away = runs.rename(runs.with_name("away"))
    seen = look(workspace)
    assert (seen.runs, seen.notes) == ((), ("runs no longer exists: forgot 2 runs",))
    assert look(workspace).notes == ()
    away.rename(runs)
    assert [run.path for run in look(workspace).runs] == ["runs/a", "runs/b"]


def test_a_root_below_another_is_not_told_twice(workspace: Workspace, runs: Path) -> None:
    scan_and_record([place(runs / "a")], workspace.store, whole=False, system="linux", say=lambda _: None)
    seen = look(workspace)
    assert seen.roots == ("runs",)
    assert [run.path for run in seen.runs] == ["runs/a", "runs/b"]
    shutil.rmtree(runs / "a")
    assert [run.path for run in look(workspace).runs] == ["runs/b"]


def test_when_the_time_is_over_the_rest_is_as_it_was_and_its_age_is_said(
    workspace: Workspace, runs: Path
) -> None:
    save(runs / "b" / "step-9", "dcp-2.15.0")
    seen = look(workspace, later=7200, step=1.0)
    assert [run.path for run in seen.runs] == ["runs/a", "runs/b"]
    (note,) = seen.notes
    assert note == (
        f"{runs}: scanned in part, for 2 s; the rest is as last recorded 2 h ago"
        " (`torchenv checkpoints scan` reads all of it)"
    )
    # It goes on where it stopped, and comes to an end.
    assert [run.newest for run in look(workspace).runs] == ["step-100", "step-9"]


def test_without_an_index_the_runs_are_looked_for_where_they_were(workspace: Workspace, runs: Path) -> None:
    workspace.store.index_path.unlink()
    save(runs / "a" / "step-200", "dcp-2.15.0")
    assert [run.newest for run in look(workspace).runs] == ["step-200", "step-5"]


def test_a_look_that_records_nothing_waits_for_nobody(workspace: Workspace, runs: Path) -> None:
    save(runs / "a" / "step-200", "dcp-2.15.0")
    before = workspace.store.manifest_path.read_bytes()
    with workspace.store.hold("another"):
        assert look(workspace, record=False).runs[0].newest == "step-200"
    assert workspace.store.manifest_path.read_bytes() == before


def test_what_cannot_be_recorded_is_told_all_the_same(
    workspace: Workspace, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(runs / "a" / "step-200", "dcp-2.15.0")

    def full(*_: object) -> None:
        raise WorkspaceError("no space is left")

    monkeypatch.setattr(Store, "write_index", full)
    seen = look(workspace)
    assert seen.runs[0].newest == "step-200"
    assert seen.notes == ("what changed could not be recorded: no space is left",)


def test_roots_are_known_without_being_told(tmp_path: Path) -> None:
    for name in ("runs/a/checkpoint-5", "out/b", "home"):
        (tmp_path / name).mkdir(parents=True)
    written = [tmp_path / "out/b", tmp_path / "runs/a/checkpoint-5", tmp_path / "gone", tmp_path / "home"]
    found = find_roots(("/data",), map(str, written), tmp_path, tmp_path / "home")
    assert found == ("/data", *(str(tmp_path / name) for name in ("out/b", "runs/a", "runs")))


def test_a_scan_that_is_stopped_keeps_what_it_has_and_the_next_goes_on(
    workspace: Workspace, runs: Path
) -> None:
    for step in (200, 300, 400):
        save(runs / "a" / f"step-{step}", "dcp-2.15.0")
    shutil.rmtree(runs / "b")
    said: list[str] = []

    class StoppedPlace(LocalPlace):
        def tree(self, address: str) -> Tree:
            if address.endswith("step-300"):
                raise KeyboardInterrupt
            return super().tree(address)

    with pytest.raises(KeyboardInterrupt):
        scan_and_record([StoppedPlace(runs)], workspace.store, whole=True, system="linux", say=said.append)
    # step-200 was read, and what was not come to is as it was.
    assert [(run.path, run.newest) for run in workspace.store.read().runs] == [
        ("runs/a", "step-200"),
        ("runs/b", "step-5"),
    ]
    assert said[-1] == "stopped after 1 folders were read: the next scan goes on from there"
    scanned, lines = scan_and_record(
        [place(runs)], workspace.store, whole=True, system="linux", say=lambda _: None
    )
    assert scanned.index.read == 2
    assert [(run.path, run.newest) for run in lines] == [("runs/a", "step-400")]
