"""No file that someone may edit is shared between two environments, or with an installer's cache."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TypeVar

from torchenv.system.clone import clone, exchange
from torchenv.system.disk import explain_refusals
from torchenv.system.scratch import hold_folder
from torchenv.system.values import frozen

Result = TypeVar("Result")
After = TypeVar("After")

# Nobody edits a binary of this size, and these are nearly all the bytes of an environment.
LARGE = 1 << 20


@frozen
class Isolated:
    """What it took: how many files were given an inode of their own, and their bytes."""

    files: int
    bytes: int


def link_mode(wanted: str, *, can_clone: bool, same_file_system: bool) -> str:
    """Settle a profile's `link-mode` (auto, copy, hardlink) as clone, hardlink or copy for the installer.

    `same_file_system` is that of the installer's cache and the environment, which a link must not leave.
    """
    if wanted == "copy" or not same_file_system:
        return "copy"
    return "clone" if wanted == "auto" and can_clone else "hardlink"


def can_clone(source: Path, target: Path) -> bool:
    """Try whether the file system gives a file of directory `target` the blocks of one of `source`."""
    with hold_folder(source, _SCRATCH) as here, hold_folder(target, _SCRATCH) as there:
        original = here / "original"
        original.write_bytes(b"torchenv")
        return clone(str(original), str(there / "clone"))


# Beside what is tried, for the file system there is what counts.
_SCRATCH = ".torchenv-try-"


def isolate(environment: Path, stopped: Event | None = None) -> Isolated:
    """Separate every file from its other names: an inode of its own, with the same bytes, mode and time.

    Where the file system can clone that costs no space, and none is left shared. Elsewhere binaries over
    1 MiB stay shared: they are nearly all the bytes, and nobody edits them. No file is missing at any moment.
    Raises `WorkspaceError` where the disk refuses; goes no further once `stopped` is set.
    """
    stopped = stopped or Event()
    with explain_refusals(environment):
        cloning = can_clone(environment, environment)
        shared = [found for found in _find_shared_files(environment) if cloning or _may_be_edited(*found)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            # One call for many files: handing over each by itself costs more than the copy.
            parts = [shared[start : start + 200] for start in range(0, len(shared), 200)]
            for done in [pool.submit(_separate_all, part, stopped, cloning=cloning) for part in parts]:
                done.result()
    return Isolated(len(shared), sum(status.st_size for _, status in shared))


def isolate_beside(
    environment: Path, read: Callable[[], Result], then: Callable[[], After]
) -> tuple[Result, After]:
    """Isolate an environment while `read` reads in it, then do `then`; return the results of both.

    Windows replaces no library that somebody has loaded: there `read` comes after. Raises what `isolate` and
    the two raise; where `read` fails, the rest of the files is left as it is.
    """
    stopped = Event()

    def work() -> After:
        if os.name != "nt":
            isolate(environment, stopped)
        return then()

    if os.name == "nt":
        isolate(environment)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        try:
            return read(), done.result()
        finally:
            stopped.set()


def _find_shared_files(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [str(directory)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    # On Windows the entry's own stat knows no count of links.
                    status = entry.stat(follow_symlinks=False) if os.name == "posix" else os.lstat(entry.path)
                    if status.st_nlink > 1:
                        yield entry.path, status


def _may_be_edited(path: str, status: os.stat_result) -> bool:
    if status.st_size <= LARGE:
        return True
    with Path(path).open("rb") as file:
        return b"\0" not in file.read(8192)


def _separate_all(shared: Sequence[tuple[str, os.stat_result]], stopped: Event, *, cloning: bool) -> None:
    for path, status in shared:
        if stopped.is_set():
            return
        _separate(path, status, cloning=cloning)


def _separate(path: str, status: os.stat_result, *, cloning: bool) -> None:
    # 20,000 paths as strings: a Path for each takes as long as the copying.
    beside = f"{path}.torchenv"
    try:
        if not (cloning and clone(path, beside)):
            _copy(path, beside)
        os.chmod(beside, stat.S_IMODE(status.st_mode))  # noqa: PTH101
        os.utime(beside, ns=(status.st_atime_ns, status.st_mtime_ns))
        _put_in_place(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)  # noqa: PTH108
        raise


def _copy(path: str, beside: str) -> None:
    source = os.open(path, os.O_RDONLY | _BINARY)
    try:
        target = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY)
        try:
            while block := os.read(source, LARGE):
                # A disk that is nearly full takes a part and refuses the next.
                while block:
                    block = block[os.write(target, block) :]
        finally:
            os.close(target)
    finally:
        os.close(source)


_BINARY = getattr(os, "O_BINARY", 0)


def _put_in_place(beside: str, path: str) -> None:
    """Let a file take the place of another, which is there until then."""
    # Renaming over a file makes ext4 write it out at once, which takes twice as long for torch's 20,000.
    if exchange(beside, path):
        os.unlink(beside)  # noqa: PTH108
    else:
        os.replace(beside, path)  # noqa: PTH105
