"""Whether there is room for an environment, before anything is fetched: where it lies, and in the cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from torchenv.actions.ports import Ports
from torchenv.errors import ToolFailed, WorkspaceError
from torchenv.installers.cache import UvCache, find_noexec
from torchenv.lockfile.lock import Lock, LockedFile
from torchenv.storage.carry import describe_size

# Unpacked, a wheel takes about twice its size.
_UNPACKED = 2


def check_room(lock: Lock, *, usual: int, ports: Ports) -> None:
    """Refuse what a disk would refuse half way.

    `usual` is what such an environment takes to download where the index gives no sizes, in bytes. Raises
    `WorkspaceError` for the disk of the workspace, `ToolFailed` for that of the cache.
    """
    directory = ports.store.environments
    refuse_noexec(directory)
    files = [package.files[0] for package in lock.packages if package.files]
    needed = _UNPACKED * max(sum(file.size or 0 for file in files), usual)
    free = ports.store.free_space()
    if needed > free:
        raise WorkspaceError(
            f"about {describe_size(needed)} are needed for {directory}, and {describe_size(free)} are free",
            hint="free some space, or choose another disk with --root DIR",
        )
    if (cache := ports.installer.cache) is not None:
        _check_cache(cache, files, usual, ports)


def _check_cache(cache: UvCache, files: list[LockedFile], usual: int, ports: Ports) -> None:
    directory = ports.store.environments
    missing = [file for file in files if not cache.holds(file.name)]
    # With torch in the cache, the rest is what its index tells of.
    unknown = usual if any(file.name.startswith("torch-") for file in missing) else 0
    needed = _UNPACKED * max(sum(file.size or 0 for file in missing), unknown)
    if not missing or find_device(cache.path) == find_device(directory):
        return
    free = ports.store.free_space(cache.path)
    if needed > free:
        raise ToolFailed(
            f"about {describe_size(needed)} are needed for the cache {cache.path},"
            f" and {describe_size(free)} are free on its disk",
            hint="free some space there, or set UV_CACHE_DIR to a directory on a disk that has more",
        )


def refuse_noexec(directory: Path) -> None:
    """Raise `WorkspaceError` where no program of an environment in a directory could be started."""
    if find_noexec(directory):
        raise WorkspaceError(
            f"programs cannot be started from {directory}: its disk is mounted with noexec",
            hint="choose another disk with --root DIR",
        )


def list_noexec(cache: Path | None, temporary: Path) -> Iterator[str]:
    """Describe what fails later because no program may be started from the cache or from temporary files."""
    if cache is not None and find_noexec(cache):
        yield (
            f"the cache {cache} is on a disk mounted with noexec: a package that is built from source fails"
            " there; set UV_CACHE_DIR to a directory on another disk"
        )
    if find_noexec(temporary):
        yield (
            f"{temporary} is mounted with noexec: torch.compile and builds from source fail there;"
            " set TMPDIR to a directory on another disk"
        )


def find_device(path: Path) -> int | None:
    there = next(_existing(path), None)
    return there.stat().st_dev if there is not None else None


def _existing(path: Path) -> Iterator[Path]:
    for place in (path, *path.parents):
        if os.path.isdir(place):
            yield place
