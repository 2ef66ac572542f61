"""Two things that a file system may do with a file at once: share its blocks, and swap it with another."""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

if sys.platform == "linux":
    import fcntl

    # linux/fs.h: _IOW(0x94, 9, int)
    _FICLONE = 0x40049409

    def clone(path: str, beside: str) -> bool:
        """Make a new file that shares the blocks of another; False where the file system cannot."""
        try:
            with Path(path).open("rb") as source, Path(beside).open("wb") as target:
                fcntl.ioctl(target, _FICLONE, source.fileno())
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            return False
        return True
elif sys.platform == "darwin":

    def clone(path: str, beside: str) -> bool:
        """Make a new file that shares the blocks of another; False where the file system cannot."""
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.clonefile(os.fsencode(path), os.fsencode(beside), 0) == 0)
else:

    def clone(path: str, beside: str) -> bool:  # noqa: ARG001 - ReFS can, and no uv asks it to
        """Return that no file can be cloned here."""
        return False


if sys.platform == "linux":
    # linux/fcntl.h, linux/fs.h
    _AT_FDCWD, _RENAME_EXCHANGE = -100, 2

    def exchange(one: str, other: str) -> bool:
        """Swap what two names stand for, at once; False where the system or the file system cannot."""
        call = _renameat2()
        names = _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other)
        return call is not None and bool(call(*names, _RENAME_EXCHANGE) == 0)

    @cache
    def _renameat2() -> Any:
        try:
            import ctypes
        except ImportError:
            # A Python that was built where libffi was not.
            return None
        # glibc has it since 2.28, musl since 1.2.6.
        return getattr(ctypes.CDLL(None), "renameat2", None)
else:

    def exchange(one: str, other: str) -> bool:  # noqa: ARG001 - macOS clones, and then a rename is no slower
        """Return that nothing can be swapped here."""
        return False
