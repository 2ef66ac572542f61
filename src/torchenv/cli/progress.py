"""How far something has come: bars on a terminal, plain lines every few seconds elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

# Seconds between two lines where there is no terminal, and before a program that runs is spoken of.
PERIOD = 5.0
PATIENCE = 10.0
_LOOK = 0.2


class ProgressBar:
    """A bar on a terminal for each stage that moves bytes: how many of all, how fast, how long still."""

    def __init__(self, stream: TextIO) -> None:
        # Only where a terminal is: the import takes longer than a whole `list`.
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=Console(file=stream), transient=False)
        self._tasks: dict[str, Any] = {}

    def show(self, doing: str, done: int, total: int) -> None:
        """Move the bar of a stage; the last byte ends it."""
        if doing not in self._tasks:
            self._progress.start()
            self._tasks[doing] = self._progress.add_task(doing, total=total)
        self._progress.update(self._tasks[doing], completed=done, total=total)
        if done >= total:
            del self._tasks[doing]
            if not self._tasks:
                self._progress.stop()

    def stop(self) -> None:
        """Return the terminal to its state before."""
        self._progress.stop()


class ProgressLines:
    """A line every few seconds, for a log."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._begun: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def show(self, doing: str, done: int, total: int) -> None:
        """Write a line if the last one is a while ago."""
        now = self._clock()
        begun = self._begun.setdefault(doing, now)
        if now - self._last.setdefault(doing, now) >= PERIOD:
            self._last[doing] = now
            rate = done / (now - begun)
            left = f", {describe_seconds((total - done) / rate)} left" if rate else ""
            size = f"{describe_bytes(done)} of {describe_bytes(total)}"
            self._say(f"{doing}: {size}, {describe_bytes(rate)}/s{left}")
        if done >= total:
            self._begun.pop(doing)
            self._last.pop(doing)


@contextmanager
def follow(
    doing: str,
    count: Callable[[], tuple[int, int]],
    show: Callable[[int, int], None],
    stream: TextIO | None,
    say: Callable[[str], None],
) -> Iterator[None]:
    """Show how far something is, by the bytes of all that `count` gives, as often as `show` wants to know.

    While nothing of all is known: moving on the terminal `stream`, else a line now and then.
    """
    ended = threading.Event()

    def is_measured() -> bool:
        done, total = count()
        if total:
            # The last byte ends a bar, and more may be announced yet.
            show(min(done, total - 1), total)
        return bool(total)

    def turn() -> None:
        began = spoke = time.monotonic()
        if stream is not None and not ended.wait(1.0) and not is_measured():
            from rich.console import Console

            with Console(file=stream).status(doing):
                while not ended.wait(_LOOK) and not count()[1]:
                    pass
        while not ended.wait(_LOOK):
            now = time.monotonic()
            if not is_measured() and stream is None and now - spoke >= PATIENCE:
                spoke = now
                came = f", {describe_bytes(count()[0])}" if count()[0] else ""
                say(f"still {doing} ({describe_seconds(now - began)}{came})")

    thread = threading.Thread(target=turn, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(1.0)
        if total := count()[1]:
            show(total, total)


def describe_bytes(count: float) -> str:
    """Write a size in the unit that suits it."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def describe_seconds(seconds: float) -> str:
    """Write a length of time in the unit that suits it."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
