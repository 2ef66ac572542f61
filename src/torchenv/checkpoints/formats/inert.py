"""What a pickle would make, as values that do nothing: the vocabulary of `pickles`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Damaged(Exception):
    """The bytes are not what their format asks for; `code` is one of the problem codes.

    `names` are those that a pickle would have imported before its damage.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.names: tuple[Global, ...] = ()


class Global(NamedTuple):
    """A name that a pickle would import."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class InertObject:
    """An object that a pickle would make: by calling `maker`, then giving it its `state`.

    `items` are those of an OrderedDict; of other classes they are not kept.
    """

    __slots__ = ("arguments", "items", "maker", "state")

    def __init__(self, maker: Any, arguments: Any) -> None:
        self.maker = maker
        self.arguments = arguments
        self.state: Any = None
        self.items: Map | None = None


class Map(list[Any]):
    """A dict that a pickle would make, as key, value, key, value, …: nothing of it is hashed."""

    __slots__ = ()

    def pairs(self) -> list[tuple[Any, Any]]:
        return list(zip(self[::2], self[1::2], strict=True))

    def get(self, key: str) -> Any:
        """Return the last value of `key`, or None."""
        for at in range(len(self) - 2, -1, -2):
            if type(self[at]) is str and self[at] == key:
                return self[at + 1]
        return None


class Stored(NamedTuple):
    """What a pickle finds outside of itself: for torch.save, a storage."""

    reference: Any


class Unknown(str):
    """A string that was passed over."""

    __slots__ = ()


class Hidden(Exception):
    """Something was asked for that was passed over."""


class Memo:
    """A pickle's numbered values, in stretches: what is passed over takes numbers, and no room."""

    __slots__ = ("_earlier", "_recall", "_starts", "start", "values")

    def __init__(self, recall: Callable[[int], Any]) -> None:
        self._starts: list[int] = []
        self._earlier: list[list[Any]] = []
        self._recall = recall
        self.start = 0
        self.values: list[Any] = []

    def pass_over(self, count: int) -> None:
        self._starts.append(self.start)
        self._earlier.append(self.values)
        self.start += len(self.values) + count
        self.values = []

    def get(self, index: int) -> Any:
        """Return a value; raises `Damaged` where none is set, `Hidden` where it was passed over."""
        stretch = bisect_right(self._starts, index) - 1
        start, values = self.start, self.values
        if index < start:
            start, values = self._starts[stretch], self._earlier[stretch]
        if index - start < len(values):
            return values[index - start]
        if values is self.values:
            raise Damaged("pickle-damaged", f"uses memo {index}, which is not set")
        return self._recall(index)

    @property
    def top(self) -> int:
        """How many numbers are taken."""
        return self.start + len(self.values)

    def at_hand(self, since: int) -> Iterator[tuple[int, Any]]:
        """Yield every value that was not passed over from number `since` on, with its number."""
        # Every stretch from there on, and none of those before: this is asked at each record.
        for n in range(max(0, bisect_right(self._starts, since) - 1), len(self._starts)):
            skip = max(0, since - self._starts[n])
            yield from enumerate(self._earlier[n][skip:], self._starts[n] + skip)
        skip = max(0, since - self.start)
        yield from enumerate(self.values[skip:], self.start + skip)
