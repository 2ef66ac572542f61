"""The lock that the operating system keeps on an open file, and gives up with the process that took it."""

from __future__ import annotations

import errno
import os
import sys

# The filelock package would do this part too, and costs 52 ms to import: half of what a rollback may take.
if sys.platform == "win32":
    import msvcrt

    # The byte that is locked cannot be read by others, so it lies beyond what the file says.
    _LOCKED_BYTE = 1 << 30

    from platform import node as node_name

    def unlock(handle: int) -> None:
        """Return it up."""
        os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

    def try_to_lock(handle: int) -> bool | None:
        """Try once to take it; None where the file system knows no locks."""
        os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    _NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})

    def node_name() -> str:
        """Name this machine."""
        return os.uname().nodename

    def unlock(handle: int) -> None:
        """Return it up."""
        try:
            fcntl.flock(handle, fcntl.LOCK_UN)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise

    def try_to_lock(handle: int) -> bool | None:
        """Try once to take it; None where the file system knows no locks."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return None
            raise
        return True
