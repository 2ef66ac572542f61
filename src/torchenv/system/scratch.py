"""Folders for what one run needs meanwhile, which a later run clears where this one was killed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchenv.errors import WorkspaceError
from torchenv.system.mutex import try_to_lock

PREFIX = "torchenv-"

# Held by the run that a folder belongs to. What it started and nobody waits for any more may miss its files.
MUTEX = ".mutex"

_ELSEWHERE = "name another directory for temporary files with the variable TMPDIR"


@contextmanager
def make_scratch() -> Iterator[Path]:
    """Yield a new folder of this user's alone, and delete it; what killed runs left beside it goes too.

    Raises `WorkspaceError` where no place for temporary files can be written.
    """
    import tempfile

    try:
        place = Path(tempfile.gettempdir())
    except OSError as error:
        raise _refuse("a directory for temporary files", error) from error
    folder = None
    try:
        with hold_folder(place) as folder:
            yield folder
    except OSError as error:
        inside = str(folder or place)
        # What a disk without room refuses names no file.
        if folder is not None and error.filename and not str(error.filename).startswith(inside):
            raise
        raise _refuse(f"`{inside}`", error) from error


@contextmanager
def hold_folder(place: Path, prefix: str = PREFIX) -> Iterator[Path]:
    """Yield a new folder in `place`, and delete it and those that killed runs left; raises `OSError`."""
    import shutil

    clear_scratch(place, prefix)
    folder, handle = _make_held_folder(place, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def clear_scratch(place: Path, prefix: str = PREFIX) -> None:
    """Delete the folders of this user's runs that are gone; a failure is of no weight."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                with suppress(OSError):
                    _clear(Path(entry.path))


def _refuse(what: str, error: OSError) -> WorkspaceError:
    return WorkspaceError(f"{what} cannot be written: {error.strerror or error}", hint=_ELSEWHERE)


def _make_held_folder(place: Path, prefix: str) -> tuple[Path, int]:
    import tempfile

    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        # Until it is held, another run may take it for one that was left.
        with suppress(FileNotFoundError):
            handle = os.open(folder / MUTEX, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            # One that took it for left has deleted it by now, with the file that was to be held.
            if try_to_lock(handle) is not False and os.fstat(handle).st_nlink:
                return folder, handle
            os.close(handle)


def _clear(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
        return
    try:
        handle = os.open(folder / MUTEX, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        # Its run was killed before it could hold it. Whatever else has such a name is not empty.
        folder.rmdir()
        return
    try:
        # Held until all is deleted: the run that makes the folder now may just be about to take it.
        if try_to_lock(handle) is True:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
