"""What a kill means to torchenv, apart from the modules that start programs, which cost 10 ms to import."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Make a polite kill (SIGTERM, SIGHUP) an interrupt, so that no child outlives torchenv.

    Only for the main thread; Ctrl-C is an interrupt already.
    """

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
    before = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
