"""No link in a workspace leads torchenv to a file outside it, whoever put it there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from torchenv.environment.base_python import BasePython
from torchenv.errors import WorkspaceError
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.store import Store

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
AT = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
PYTHON = BasePython("3.12.7", "/usr/bin/python3.12")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of the user's, with an environment-like folder and a file in it."""
    folder = tmp_path / "foreign"
    (folder / "1-2.15.0-cpu-py3.12").mkdir(parents=True)
    (folder / "1-2.15.0-cpu-py3.12" / "notes.txt").write_text("mine")
    (folder / "thesis.txt").write_text("mine")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def workspace(root: Path) -> Store:
    """A workspace with an environment that a killed run left unfinished."""
    store = Store(root)
    with store.hold("torchenv create"):
        manifest, new = Manifest().begin(
            "2.15.0-cpu-py3.12", within=store.environments, python=PYTHON, at=AT, identity="1234"
        )
        store.write(manifest)
        store.write_lock(new.number, "lock")
        Path(new.path).mkdir(parents=True)
    return store


def changing(store: Store) -> None:
    """What the commands do between them: clear, keep files of every kind, discard, remake the link."""
    with store.hold("torchenv create"):
        manifest = store.clear_unfinished()
        store.prepare()
        store.write_lock(7, "lock")
        store.write_plan(7, "plan")
        store.write_fingerprint(7, "lines")
        store.write_log(7, "smoke.txt", "log")
        store.write_kept("sha256:0123456789abcdef0", "{}")
        store.make_lifeboat_directory("sha256:0123456789abcdef0")
        store.write(manifest)


@pytest.mark.parametrize("name", ["trash", "envs", "locks", "plans", "fingerprints", "kept", "logs"])
def test_a_link_in_the_place_of_a_folder_is_refused(tmp_path: Path, foreign: Path, name: str) -> None:
    store = workspace(tmp_path / "w")
    before = contents(foreign)
    there = store.root / name
    if there.exists():
        there.rename(tmp_path / "away")
    there.symlink_to(foreign, target_is_directory=True)
    with pytest.raises(WorkspaceError) as caught:
        changing(store)
    assert caught.value.message == f"`{there}` is a link: torchenv follows no links in a workspace"
    assert caught.value.exit_code == 5
    assert contents(foreign) == before


@pytest.mark.parametrize(
    "name", ["manifest.toml.new", "manifest.toml.last-good.new", "current.new", "locks/pylock.7.toml.new"]
)
@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_the_place_of_a_file_that_is_made_is_not_written_through(
    tmp_path: Path, foreign: Path, name: str, make: Callable[[Path, Path], None]
) -> None:
    store = workspace(tmp_path / "w")
    before = contents(foreign)
    make(store.root / name, foreign / "thesis.txt")
    changing(store)
    assert contents(foreign) == before


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
def test_a_mutex_that_is_another_file_is_not_opened(
    tmp_path: Path, foreign: Path, make: Callable[[Path, Path], None]
) -> None:
    store = workspace(tmp_path / "w")
    before = contents(foreign)
    (store.root / "lock").unlink()
    make(store.root / "lock", foreign / "thesis.txt")
    with pytest.raises(WorkspaceError):
        changing(store)
    assert contents(foreign) == before


def test_an_unfinished_environment_whose_path_is_elsewhere_deletes_nothing_there(
    tmp_path: Path, foreign: Path
) -> None:
    store = workspace(tmp_path / "w")
    before = contents(foreign)
    text = store.manifest_path.read_text().replace(
        str(store.environments / "1-2.15.0-cpu-py3.12"), str(foreign / "1-2.15.0-cpu-py3.12")
    )
    store.manifest_path.write_text(text)
    changing(store)
    assert contents(foreign) == before


def test_an_environment_that_is_a_link_goes_without_what_it_leads_to(tmp_path: Path, foreign: Path) -> None:
    store = workspace(tmp_path / "w")
    before = contents(foreign)
    there = store.environments / "1-2.15.0-cpu-py3.12"
    there.rmdir()
    there.symlink_to(foreign, target_is_directory=True)
    changing(store)
    assert contents(foreign) == before
    assert not os.path.lexists(there)


def test_what_lies_in_the_trash_without_torchenvs_mark_stays(tmp_path: Path) -> None:
    said: list[str] = []
    store = Store(workspace(tmp_path / "w").root, say=said.append)
    mine = store.root / "trash" / "1-2.15.0-cpu-py3.12-photos"
    mine.mkdir(parents=True)
    (mine / "photo.jpg").write_text("mine")
    changing(store)
    assert (mine / "photo.jpg").read_text() == "mine"
    assert f"`{mine}` was not put there by torchenv; left alone" in said
