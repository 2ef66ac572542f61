"""Looks at many folders of this machine on every core, in processes that end with this one."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

from torchenv.checkpoints.scan.index import Found, ScanIndex, ScannedFolder
from torchenv.checkpoints.values import Reader
from torchenv.storage import Folder

_BATCH = 250  # folders, some tenths of a second

# Looks at folders, each with its address, and adds what is there to an index.
LookAll = Callable[[Sequence[tuple[str, Folder]], ScanIndex], list[ScannedFolder]]
Looked = tuple[list[Reader], list[tuple[list[Found], dict[str, str]]]]


def look_on_every_core(
    look: LookAll, waiting: Sequence[tuple[str, Folder]], index: ScanIndex, workers: int
) -> Iterator[tuple[str, ScannedFolder]]:
    """Yield each folder with what was found in it, as soon as its batch is done."""
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    from multiprocessing import get_context

    batches = [waiting[n : n + _BATCH] for n in range(0, len(waiting), _BATCH)]
    # A spawned process inherits no thread and no lock, on every system alike.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_prepare)
    try:
        for batch, (readers, found) in zip(batches, pool.map(partial(_look, look), batches), strict=True):
            numbers = [index.number(reader) for reader in readers]
            for (address, folder), (items, pointers) in zip(batch, found, strict=True):
                renumbered = [item._replace(reader=numbers[item.reader]) for item in items]
                yield address, ScannedFolder(folder, renumbered, pointers)
    finally:
        pool.shutdown(cancel_futures=True)


def _look(look: LookAll, batch: Sequence[tuple[str, Folder]]) -> Looked:
    index = ScanIndex()
    looked = look(batch, index)
    return index.readers, [(scanned.found, scanned.pointers) for scanned in looked]


def _prepare() -> None:
    """Leave an interrupt to the process that was started, and end with it, however it ends."""
    from multiprocessing import parent_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is read holds no cycles: the collector would only look through it again and again.
    gc.disable()
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
