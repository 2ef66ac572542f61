"""What a killed torchenv leaves running, and how the next run comes after it.

After a `kill -9`, uv would go on writing into the directory that the next run clears. So whatever is started
while a lock is held holds that lock too, and the next run ends it, or waits for it, before it begins.
"""

from __future__ import annotations

import errno
import os
import re
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class SharedHandles:
    """The open files that every program which is started gets too."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    @contextmanager
    def share(self, handle: int) -> Iterator[None]:
        """Let every program that is started meanwhile hold an open file too, for as long as it runs.

        Windows hands no open file on: a directory in use cannot be renamed there, and is left for later.
        """
        if os.name == "nt":
            yield
            return
        self._open.add(handle)
        try:
            yield
        finally:
            self._open.discard(handle)

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the files that are open now."""
        return tuple(self._open)


def end_orphans(lock: Path, proc: Path = Path("/proc")) -> int:
    """Kill what holds a lock that another process had taken, which is no longer there; return how many.

    Only Linux tells who took a lock; elsewhere such a program is waited for.
    """
    return _end_holders(lock, lambda _, taker: not os.path.exists(proc / str(taker)), proc)


def end_own_programs(lock: Path, proc: Path = Path("/proc")) -> int:
    """Kill what this process has started and what holds a lock of its own still; return how many.

    An interrupt may come after a program was started and before anybody watches over it.
    """
    own = os.getpid()
    return _end_holders(lock, lambda pid, taker: taker == own != pid, proc)


def _end_holders(lock: Path, is_ended: Callable[[int, int], bool], proc: Path) -> int:
    ended = 0
    for pid, handle in holders(lock, proc):
        with suppress(OSError):
            # lock:   1: FLOCK  ADVISORY  WRITE 30148 fe:00:2277377 0 EOF
            said = (proc / str(pid) / "fdinfo" / handle).read_text()
            taker = re.search(r"^lock:.* FLOCK .* WRITE ([1-9]\d*) ", said, re.MULTILINE)
            if taker and is_ended(pid, int(taker[1])):
                _end(pid)
                ended += 1
    return ended


def _end(pid: int) -> None:
    """Kill a process and wait until it is gone: what it was just asking of the disk is done until then."""
    if not hasattr(os, "pidfd_open"):
        os.kill(pid, signal.SIGKILL)
        return
    try:
        process = os.pidfd_open(pid)
    except OSError as error:
        if error.errno not in _NO_PIDFD:
            raise
        os.kill(pid, signal.SIGKILL)
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        waiting = select.poll()
        waiting.register(process, select.POLLIN)
        waiting.poll(_PATIENCE)
    finally:
        os.close(process)


# Kernels before 5.3 have no such call, and some containers forbid it.
_NO_PIDFD = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL})

# Milliseconds: a disk that hangs holds a killed process for as long as it likes.
_PATIENCE = 5000


def holders(lock: Path, proc: Path = Path("/proc")) -> Iterator[tuple[int, str]]:
    """Yield the processes that have a file open, each with its handle; who waits for a lock is among them."""
    for process in sorted(proc.iterdir()) if os.path.isdir(proc) else ():
        if process.name.isdecimal():
            for handle in _list_handles(process):
                # A program opens and closes files under the eye: one that is gone says nothing of the others.
                with suppress(OSError):
                    if (process / "fd" / handle).readlink() == lock:
                        yield int(process.name), handle


def _list_handles(process: Path) -> list[str]:
    """List the open files of a process; none where it has ended under the eye or is another user's."""
    try:
        return os.listdir(process / "fd")  # noqa: PTH208 - thousands of paths are strings here
    except OSError:
        return []
