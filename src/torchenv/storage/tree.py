"""Where a checkpoint's files are read from: a port, and its maker for the local file system."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

_MOST = 256 << 20  # bytes; the directory of an archive with 100,000 storages has 10 MB


class Tree(Protocol):
    """A checkpoint's files: a directory with the files in it, or one file on its own."""

    @property
    def path(self) -> str:
        """How people name it."""

    def sizes(self) -> Mapping[str, int]:
        """Return the files by name, `/` between the parts, with their sizes in bytes."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a part of one file, shorter where the file ends; raises `OSError`."""


class LocalTree:
    """A directory, or one file, of the local file system.

    Links to files are followed. Whatever is not a plain file is left out, and so is what the system makes
    up, as in /proc: reading a pipe would wait for ever.
    """

    def __init__(self, path: Path) -> None:
        self._directory = path if os.path.isdir(path) else path.parent
        self._only = None if os.path.isdir(path) else path.name
        self.path = str(path)

    def sizes(self) -> Mapping[str, int]:
        if self._only is not None:
            found = [(self._only, self._directory / self._only)]
        else:
            found = [(item.name, Path(item.path)) for item in os.scandir(self._directory)]
        sizes = {}
        for name, path in sorted(found):
            try:
                if path.is_symlink() and leads_into_system(os.path.realpath(path)):
                    continue
                status = path.stat()
            except OSError:
                continue  # gone, or not ours to read: the same as not there
            if stat.S_ISREG(status.st_mode):
                sizes[name] = status.st_size
        return sizes

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        with (self._directory / name).open("rb", buffering=0) as file:
            file.seek(start)
            # One read for all of it: a second copy of a large `.metadata` would be felt.
            return file.read() if length is None else file.read(length)


def leads_into_system(path: str) -> bool:
    """Return whether a path without links is of what the system makes up and no disk holds."""
    return path.startswith(("/proc/", "/sys/", "/dev/"))


def leads_out(link: Path, root: Path) -> bool:
    """Whether a link leads out of a directory; one in a circle leads nowhere."""
    # Path.resolve() raises RuntimeError for a circle before Python 3.13; this gives a path that is not there.
    return not Path(os.path.realpath(link)).is_relative_to(os.path.realpath(root))


class TreeFile(io.RawIOBase):
    """One file of a tree as a seekable file, for what reads its parts by itself (`zipfile`).

    It gives no part of more than `_MOST` bytes: an archive says itself how large its directory is.
    """

    def __init__(self, tree: Tree, name: str, size: int) -> None:
        self._tree = tree
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(f"cannot seek to {base + offset}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, length: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        asked = left if length < 0 else min(length, left)
        if asked > _MOST:
            raise OSError(errno.EFBIG, f"a part of {asked} bytes is not read")
        data = self._tree.read(self._name, self._at, asked)
        self._at += len(data)
        return data
