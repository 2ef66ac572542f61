"""What holds a workspace on shared storage, where locks may reach no further than one machine.

A lease is a file that only one can make: exclusive creation holds on every file system, NFS among them.
Whoever holds it writes signs of life into it; one that is silent for long has no holder any more. It comes
beside the lock of the operating system, which tells at once that a holder on the same machine is gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchenv.errors import WorkspaceError
from torchenv.system.mutex import node_name

# Seconds between two signs of life, and without any until the holder counts as gone.
BEAT = 5.0
SILENCE = 60.0


class Lease:
    """A lease for one run. `node` tells the machine, `purpose` is what others are told they wait for.

    A sign of life comes every `beat` seconds; after `silence` seconds without one the holder is given up.
    """

    def __init__(
        self,
        path: Path,
        purpose: str,
        *,
        node: str,
        beat: float = BEAT,
        silence: float = SILENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._token = os.urandom(8).hex()
        self._said = f"{purpose} (process {os.getpid()} on {node_name()})"
        self._node = node
        self._beat = beat
        self._silence = silence
        self._clock = clock
        self._seen: tuple[str, float] = ("", clock())

    def try_take(self, *, alone: bool) -> bool:
        """Try once to take it; `alone` says that nobody else on this machine can hold it.

        What is left of a holder that is gone is cleared on the way.
        """
        return self._make() or (self._clear_stale(alone=alone) and self._make())

    def is_gone(self, *, alone: bool) -> bool:
        """Return whether no run holds it any more, by one look; `alone` as for `try_take`.

        On another machine a holder counts as gone when its last sign of life is older than `silence`, by the
        clock of the storage that both see.
        """
        found = _fields(self._path)
        if found is None or (alone and found[1] in {self._node, ""}):
            return True
        probe = self._path.with_name(f"{self._path.name}.{self._token}")
        try:
            probe.touch()
            return probe.stat().st_mtime - self._path.stat().st_mtime >= self._silence
        except OSError:
            return False
        finally:
            probe.unlink(missing_ok=True)

    @property
    def holder(self) -> str:
        """Who holds it, for people."""
        return (_fields(self._path) or ("", "", "another run", ""))[2]

    @contextmanager
    def keep_alive(self) -> Iterator[None]:
        """Yield signs of life until the block is over, then give it back."""
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
        found = _fields(self._path)
        return found is not None and found[0] == self._token

    def refuse_lost(self) -> None:
        """Raise `WorkspaceError` where another run has taken over."""
        if not self.is_held:
            raise WorkspaceError(
                f"lost the workspace to {self.holder} (no heartbeat for {self._silence:g} s)",
                hint="run it again; nothing more was changed",
            )

    def _make(self) -> bool:
        try:
            with self._path.open("x", encoding="utf-8") as file:
                file.write(self._text(0))
        except FileExistsError:
            return False
        return True

    def _live(self, wait: Callable[[float], bool]) -> None:
        count = 0
        while not wait(self._beat):
            count += 1
            # A disk that is full or away for a while is no reason to stop.
            with suppress(OSError):
                if self.is_held:
                    self._path.write_text(self._text(count), encoding="utf-8")

    def _text(self, count: int) -> str:
        return f"{self._token}\n{self._node}\n{self._said}\n{count}\n"

    def _clear_stale(self, *, alone: bool) -> bool:
        """Clear what a holder left that is gone, and say whether nothing is in the way any more."""
        found = _fields(self._path)
        if found is None:
            return True
        text = "\n".join(found)
        if text != self._seen[0]:
            self._seen = (text, self._clock())
        silent = self._clock() - self._seen[1] >= self._silence
        # A file without a word was made by a run that ended before it could write.
        if (
            not silent
            and not (alone and found[1] in {self._node, ""})
            and not _is_of_earlier_boot(self._path, found)
        ):
            return False
        self._clear(found[0])
        return True

    def _clear(self, token: str) -> None:
        # Of several that see it gone, one makes this file; the others must not delete what comes after.
        mark = self._path.with_name(f"{self._path.name}.{token or 'unwritten'}")
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return
        try:
            found = _fields(self._path)
            if found is not None and found[0] == token:
                self._path.unlink(missing_ok=True)
        finally:
            mark.unlink(missing_ok=True)


def _is_of_earlier_boot(path: Path, found: tuple[str, str, str, str]) -> bool:
    """Return whether it was last written by this machine before it was started again."""
    if not found[2].endswith(f" on {node_name()})"):
        return False
    try:
        stat = Path("/proc/stat").read_text(encoding="ascii", errors="replace")
        # btime 1764547200
        started = next(int(line.split()[1]) for line in stat.splitlines() if line.startswith("btime "))
        return path.stat().st_mtime < started
    except (OSError, StopIteration, ValueError, IndexError):
        return False


def _fields(path: Path) -> tuple[str, str, str, str] | None:
    # Opening it asks the server anew, where looking at its time would be answered from a cache.
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return None
    token, node, said, count = (*lines, "", "", "", "")[:4]
    return token, node, said or "another run", count
