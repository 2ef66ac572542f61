"""What holds a workspace, or the number of one environment, also on storage that machines share.

A lease is a file that only one can make: exclusive creation holds on every file system, NFS among them.
Its holder writes a heartbeat into it; one that is silent for long is gone. It comes beside the lock of the
operating system, which shows at once that a holder on the same machine is gone.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from torchenv.errors import WorkspaceError
from torchenv.system.disk import NO_ROOM as _NO_ROOM
from torchenv.system.looking import find_paths
from torchenv.system.mutex import node_name
from torchenv.system.values import frozen

# Seconds between two heartbeats, and without any until the holder counts as gone.
BEAT = 5.0
SILENCE = 60.0

# Seconds in which who made a lease has written its name into it.
_UNWRITTEN = 2.0


@frozen(kw_only=True)
class Holder:
    """Who holds a lease.

    `node` is the running system, `host` the machine, `space` what the number of the process counts in.
    """

    token: str = ""
    node: str = ""
    description: str = "another run"
    count: str = ""
    host: str = ""
    space: str = ""
    pid: str = ""

    @classmethod
    def parse(cls, text: str) -> Holder:
        """Read the lines of a lease; what is missing stays empty."""
        lines = (*text.split("\n"), *[""] * 7)[:7]
        token, node, description, count, host, space, pid = lines
        return cls(
            token=token,
            node=node,
            description=description or "another run",
            count=count,
            host=host,
            space=space,
            pid=pid,
        )

    def __str__(self) -> str:
        words = (self.token, self.node, self.description, self.count, self.host, self.space, self.pid)
        return "\n".join(words) + "\n"


class Lease:
    """A lease for one run. `node` names the running system, `host` the machine, `purpose` is shown to others.

    A heartbeat comes every `beat` seconds; after `silence` seconds without one the holder counts as gone.
    """

    def __init__(
        self,
        path: Path,
        purpose: str,
        *,
        node: str,
        host: str = "",
        beat: float = BEAT,
        silence: float = SILENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        self._own = Holder(
            token=os.urandom(8).hex(),
            count=f"{0:010}",
            node=node,
            description=f"{purpose} (process {os.getpid()} on {node_name()}, since {since})",
            host=host,
            space=_process_space(),
            pid=str(os.getpid()),
        )
        self._beat = beat
        self._silence = silence
        self._clock = clock
        self._seen: tuple[str, float] = ("", clock())
        self._is_unwritten = False

    def try_take(self, *, alone: bool) -> bool:
        """Try once to take it; `alone` says that nobody else on this machine can hold it.

        What is left of a holder that is gone is cleared on the way.
        """
        self._clear_drafts()
        return self._make() or (self._clear_stale(alone=alone) and self._make())

    def take_unwritten(self) -> None:
        """Take it without its file, for who holds the lock of the system on a disk that is full."""
        self._is_unwritten = True

    @property
    def holder(self) -> str:
        """Who holds it, for people."""
        return (_read_holder(self._path) or Holder()).description

    @contextmanager
    def keep_alive(self) -> Iterator[None]:
        """Write heartbeats until the block is over, then release the lease."""
        # 2 ms, which a command that only reads does not pay.
        from threading import Event, Thread

        over = Event()
        thread = Thread(target=self._live, args=(over.wait,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            if self.is_held:
                with suppress(FileNotFoundError):
                    self._path.unlink()

    @property
    def is_held(self) -> bool:
        """Whether it is still this run's: one that slept for long may have been given up by the others."""
        found = _read_holder(self._path)
        if found is None:
            return self._is_unwritten
        return found.token == self._own.token

    def refuse_lost(self) -> None:
        """Raise `WorkspaceError` where another run has taken over."""
        if not self.is_held:
            raise WorkspaceError(
                f"lost the workspace to {self.holder} (no heartbeat for {self._silence:g} s)",
                hint="run the command again; nothing more was changed",
            )

    def is_gone(self, *, alone: bool) -> bool:
        """Return whether no run holds it any more, by one look; `alone` as for `try_take`.

        On another machine a holder counts as gone when its last heartbeat is older than `silence`, by the
        clock of the storage that both see.
        """
        found = _read_holder(self._path)
        if found is None or self._is_gone(found, alone=alone):
            return True
        probe = self._path.with_name(f"{self._path.name}.{self._own.token}")
        try:
            probe.touch()
            return probe.stat().st_mtime - self._path.stat().st_mtime >= self._silence
        except OSError:
            return False
        finally:
            probe.unlink(missing_ok=True)

    def _make(self) -> bool:
        # Under its own name first, so that nobody ever sees a lease without its holder.
        beside = self._path.with_name(f"{self._path.name}.{self._own.token}.new")
        try:
            try:
                _write_new(beside, str(self._own))
                os.link(beside, self._path)
            finally:
                # An interrupt comes at any moment.
                beside.unlink(missing_ok=True)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise
            return self._make_in_place()
        return True

    def _clear_drafts(self) -> None:
        """Delete what killed runs had written and not yet given its name; a failure is of no weight."""
        for draft in find_paths(self._path.parent, f"{self._path.name}.*.new"):
            with suppress(OSError, WorkspaceError):
                found = _read_holder(draft) or Holder()
                is_of_the_gone = bool(found.token) and self._is_gone(found, alone=False)
                if is_of_the_gone or _is_older(draft, self._silence):
                    draft.unlink(missing_ok=True)

    def _make_in_place(self) -> bool:
        # Some file systems know no second name of a file.
        try:
            _write_new(self._path, str(self._own))
        except FileExistsError:
            return False
        return True

    def _live(self, wait: Callable[[float], bool]) -> None:
        count = 0
        while not wait(self._beat):
            count += 1
            # A disk that is full or away for a while is no reason to stop.
            with suppress(OSError, WorkspaceError):
                if self.is_held:
                    # As long as what it replaces: who reads meanwhile never finds a half.
                    handle = os.open(self._path, os.O_WRONLY | _NO_LINK | _NO_WAIT)
                    with open(handle, "wb") as file:  # noqa: PTH123
                        file.write(
                            str(replace(self._own, count=f"{count:010}")).encode(errors="surrogateescape")
                        )

    def _clear_stale(self, *, alone: bool) -> bool:
        """Clear what a holder left that is gone, and return whether nothing is in the way any more."""
        found = _read_holder(self._path)
        if found is None:
            return True
        if str(found) != self._seen[0]:
            self._seen = (str(found), self._clock())
        seen = self._clock() - self._seen[1]
        if seen < self._silence and not self._is_gone(found, alone=alone, seen=seen):
            return False
        self._clear(found.token)
        return True

    def _is_gone(self, found: Holder, *, alone: bool, seen: float = 0.0) -> bool:
        own = self._own
        if not found.token:
            # Left by a full disk, or just being written where there are no second names.
            return seen >= _UNWRITTEN or _is_old(self._path)
        if found.node == own.node:
            ended = found.space == own.space and found.pid.isdecimal() and not _is_alive(int(found.pid))
            return alone or ended
        # The same machine under another boot has lost every process since.
        return bool(own.host) and found.host == own.host

    def _clear(self, token: str) -> None:
        # Of several that see it gone, one makes this file; the others must not delete what comes after.
        mark = self._path.with_name(f"{self._path.name}.{token or 'unwritten'}")
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
        try:
            found = _read_holder(self._path)
            if found is not None and found.token == token:
                self._path.unlink(missing_ok=True)
        finally:
            mark.unlink(missing_ok=True)


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    except FileExistsError:
        raise
    except OSError:
        # What a full disk took half of would be nobody's lease.
        path.unlink(missing_ok=True)
        raise


def _read_holder(path: Path) -> Holder | None:
    # Opening it asks the server anew, where looking at its time would be answered from a cache.
    try:
        handle = os.open(path, os.O_RDONLY | _NO_LINK | _NO_WAIT)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _refuse_what_is_no_lease(path) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _refuse_what_is_no_lease(path)
    with open(handle, "rb") as file:  # noqa: PTH123
        return Holder.parse(file.read(_LONGEST).decode("utf-8", "replace"))


# Neither a link is followed, nor what never ends waited for.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)

# Bytes of a lease that are read at most.
_LONGEST = 1 << 16


def _refuse_what_is_no_lease(path: Path) -> WorkspaceError:
    return WorkspaceError(
        f"`{path}` is not a file of torchenv's",
        hint="move it away, or name another workspace with `--root DIR`",
    )


def _process_space() -> str:
    # pid:[4026531836]: containers of one machine number their processes each for themselves.
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    return ""


def _is_old(path: Path) -> bool:
    return _is_older(path, _UNWRITTEN)


def _is_older(path: Path, seconds: float) -> bool:
    with suppress(OSError):
        return time.time() - path.stat().st_mtime >= seconds
    return False


def _is_alive(pid: int) -> bool:
    if os.name != "posix":
        # Windows would end the process that is asked after.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
