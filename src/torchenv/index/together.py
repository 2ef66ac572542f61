"""Work that waits for others, in threads that nobody waits for once torchenv stops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# An interrupt is noticed between two looks, also where a system does not break off a wait.
_LOOK = 0.2


def ask_together(task: Callable[[Item], Result], items: Iterable[Item], *, at_once: int = 8) -> list[Result]:
    """Do a task for every item, some at once; results in the order of the items.

    Raises what the first task that failed raised. The threads are daemons: a host that never answers holds
    up neither an interrupt nor the end of the program.
    """
    todo = list(items)
    waiting: SimpleQueue[tuple[int, Item]] = SimpleQueue()
    done: SimpleQueue[tuple[int, Result | BaseException, bool]] = SimpleQueue()
    for place, item in enumerate(todo):
        waiting.put((place, item))
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            try:
                place, item = waiting.get_nowait()
            except Empty:
                return
            try:
                done.put((place, task(item), True))
            except BaseException as error:
                done.put((place, error, False))

    for _ in range(min(at_once, len(todo))):
        threading.Thread(target=work, daemon=True).start()
    results: dict[int, Result] = {}
    try:
        while len(results) < len(todo):
            place, result, is_right = _wait(done)
            if not is_right:
                assert isinstance(result, BaseException)
                raise result
            results[place] = result  # type: ignore[assignment]
    finally:
        stopped.set()
    return [results[place] for place in range(len(todo))]


def wait_for(task: Callable[[], Result], seconds: float | None) -> Result:
    """Do one task, and raise `TimeoutError` where it takes longer: looking up a name has no limit."""
    done: SimpleQueue[tuple[Result | BaseException, bool]] = SimpleQueue()

    def work() -> None:
        try:
            done.put((task(), True))
        except BaseException as error:
            done.put((error, False))

    threading.Thread(target=work, daemon=True).start()
    result, is_right = _wait(done, seconds)
    if not is_right:
        assert isinstance(result, BaseException)
        raise result
    return result  # type: ignore[return-value]


def _wait(queue: SimpleQueue[Item], seconds: float | None = None) -> Item:
    left = seconds
    while True:
        try:
            return queue.get(timeout=_LOOK if left is None else max(0.0, min(_LOOK, left)))
        except Empty:
            if left is not None:
                left -= _LOOK
                if left <= 0:
                    raise TimeoutError from None
