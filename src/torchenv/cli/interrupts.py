"""What a kill means to torchenv, apart from the modules that start programs, which cost 10 ms to import."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Make a polite kill (SIGTERM, SIGHUP) an interrupt, so that no child outlives torchenv.

    Ctrl-C is an interrupt already. What is ignored stays so: `nohup` means it for the program that
    `torchenv run` becomes. Only the main thread hears of signals.
    """

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    names = ("SIGTERM", "SIGHUP", "SIGBREAK")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {}
    # Any other thread may not say what a signal means.
    with contextlib.suppress(ValueError):
        for number in heard:
            before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
