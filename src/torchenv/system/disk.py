"""The disk under the workspace: what is done to it, and what it says when it refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from torchenv.errors import WorkspaceError
from torchenv.system.mutex import node_name, try_to_lock

# Windows counts 260 with the closing zero, unless LongPathsEnabled is set in its registry.
WINDOWS_PATH_LIMIT = 259


class Disk:
    """The few ways in which the workspace is changed; a test puts one in its place that stops half way.

    Raises `WorkspaceError` where the disk refuses.
    """

    def try_to_lock(self, handle: int) -> bool | None:
        """Try once to lock an open file against others; None where its file system knows no locks."""
        return try_to_lock(handle)

    def node(self) -> str:
        """Return what tells this machine from others that share the disk, also those of one image."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        except OSError:
            return node_name()

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it, where it is not there."""
        with explain_refusals(path):
            path.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, text: str) -> None:
        """Write a file and wait until it is on the disk."""
        with (
            explain_refusals(path),
            path.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as file,
        ):
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, old: Path, new: Path) -> None:
        """Put one in the place of the other at once: whoever looks sees the old or the new."""
        with explain_refusals(old):
            old.replace(new)
            _settle(new.parent)

    def put(self, path: Path, text: str) -> None:
        """Put a file in place at once: whoever looks sees what was there or all of this."""
        # Two may put the same file at once: each writes its own beside it.
        beside = path.with_name(f".{path.name}.{os.getpid()}.new")
        self.write(beside, text)
        self.rename(beside, path)

    def link(self, at: Path, target: Path) -> bool:
        """Make a symbolic link to a directory, or say that links are not allowed here."""
        try:
            at.symlink_to(target, target_is_directory=True)
        except OSError:
            return False
        return True

    def delete(self, path: Path) -> bool:
        """Delete a file, a link or a whole directory, and say whether it is gone."""
        if path.is_dir() and not path.is_symlink():
            # Only what deletes a directory pays for this import.
            import shutil

            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
        return not os.path.lexists(path)

    def free_space(self, path: Path) -> int:
        """Return the bytes that are free where `path` is or would be."""
        import shutil

        with explain_refusals(path):
            while not path.exists() and path != path.parent:
                path = path.parent
            return shutil.disk_usage(path).free


def _settle(directory: Path) -> None:
    # The rename is on the disk once its directory is. Windows does that by itself, and opens no directory.
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class PathLength(NamedTuple):
    """How long the longest path of an environment becomes, in characters."""

    root: int
    longest: int
    limit: int = WINDOWS_PATH_LIMIT

    @property
    def total(self) -> int:
        """The directory, a separator, and the longest path under it."""
        return self.root + 1 + self.longest

    @property
    def fits(self) -> bool:
        """Whether the system opens such a path."""
        return self.total <= self.limit

    @property
    def too_many(self) -> int:
        """How many characters shorter the directory must be."""
        return max(0, self.total - self.limit)

    def __str__(self) -> str:
        return f"{self.root} + 1 + {self.longest} = {self.total} characters, of {self.limit}"


@contextmanager
def explain_refusals(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into a `WorkspaceError` that names the place and the remedy."""
    try:
        yield
    except OSError as error:
        raise make_refusal(path, error) from error


def make_refusal(path: Path, error: OSError) -> WorkspaceError:
    """Describe what the disk refused, and what to do about it."""
    elsewhere = "choose another place with `--root DIR` or TORCHENV_HOME"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            hint = "free some space, with `torchenv prune` for one, or " + elsewhere
            return WorkspaceError(f"{path}: no space is left on its disk", hint=hint)
        case errno.EROFS:
            return WorkspaceError(f"{path}: its disk is read-only", hint=elsewhere)
        case errno.EACCES | errno.EPERM:
            return WorkspaceError(f"{path}: may not be written by this user", hint=elsewhere)
        case _:
            return WorkspaceError(f"{path}: {error.strerror or error}", hint=elsewhere)
