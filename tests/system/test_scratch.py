"""What a killed run left among the temporary files is cleared, and what another run needs is not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from torchenv.errors import WorkspaceError
from torchenv.system import mutex, scratch
from torchenv.system.scratch import clear_scratch, make_scratch

pytestmark = pytest.mark.skipif(os.name == "nt", reason="files that are open stay there")

_HOLD = """
import sys
from torchenv.system.scratch import make_scratch
with make_scratch() as folder:
    (folder / "inside").write_text("work")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def hold(place: Path) -> tuple[subprocess.Popen[str], Path]:
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD],
        env={**os.environ, "TMPDIR": str(place), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_a_folder_is_there_for_its_run_alone(place: Path) -> None:
    with make_scratch() as folder:
        assert folder.parent == place
        assert folder.stat().st_mode & 0o777 == 0o700
        clear_scratch(place)
        assert folder.is_dir()
    assert list(place.iterdir()) == []


def test_what_a_killed_run_left_goes_and_what_another_run_needs_stays(place: Path) -> None:
    left, needed = hold(place), hold(place)
    try:
        left[0].send_signal(signal.SIGKILL)
        left[0].wait()
        with make_scratch():
            assert not left[1].exists()
            assert (needed[1] / "inside").read_text() == "work"
    finally:
        for child, _ in (left, needed):
            child.kill()
            child.communicate()


def test_what_has_such_a_name_and_is_not_torchenvs_stays(place: Path) -> None:
    (place / "torchenv-notes").mkdir()
    (place / "torchenv-notes" / "notes.txt").write_text("mine")
    (place / "torchenv-link").symlink_to("torchenv-notes")
    (place / "torchenv-file").write_text("mine")
    clear_scratch(place)
    assert sorted(path.name for path in place.iterdir()) == [
        "torchenv-file",
        "torchenv-link",
        "torchenv-notes",
    ]
    assert (place / "torchenv-notes" / "notes.txt").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(WorkspaceError) as caught, make_scratch():
        raise AssertionError
    assert str(caught.value) == f"`{tmp_path / 'gone'}` cannot be written: No such file or directory"
    assert caught.value.hint == "name another directory for temporary files with the variable TMPDIR"


def test_a_folder_that_another_run_clears_before_it_is_held_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, cleared = mutex.try_to_lock, list[list[Path]]()

    def lock_late(handle: int) -> bool | None:
        # The other run comes between the making of the folder and the taking of it.
        if not cleared:
            cleared.append(sorted(place.iterdir()))
            clear_scratch(place)
        return real(handle)

    monkeypatch.setattr(scratch, "try_to_lock", lock_late)
    with make_scratch() as folder:
        assert [folder] not in cleared
        (folder / "inside").write_text("work")
        clear_scratch(place)
        assert (folder / "inside").read_text() == "work"


def test_what_is_being_cleared_is_not_taken(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_delete = shutil.rmtree
    left = place / "torchenv-left"
    left.mkdir()
    (left / scratch.MUTEX).touch()
    taken = []

    def delete(folder: Path, *, ignore_errors: bool = False) -> None:
        handle = os.open(left / scratch.MUTEX, os.O_RDWR)
        taken.append(mutex.try_to_lock(handle))
        os.close(handle)
        real_delete(folder, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", delete)
    clear_scratch(place)
    assert taken == [False]
    assert not left.exists()
