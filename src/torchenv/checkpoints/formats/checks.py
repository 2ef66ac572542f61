"""Checks a large DCP `.metadata` record by record, and keeps neither the file nor its chunks in memory.

What is right is said at once; for anything else the whole of it is read, which finds what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import mul
from typing import Any

from torchenv.checkpoints.formats.coverage import covers
from torchenv.checkpoints.formats.inert import Global, Hidden, InertObject, Map, Memo
from torchenv.checkpoints.formats.listing import Listing, list_metadata
from torchenv.checkpoints.formats.records import (
    METADATA,
    Piece,
    RawPlace,
    Records,
    Shape,
    States,
    read_integer,
)

ReadPart = Callable[[int, int], bytes]  # from a place, so many bytes

_PART, _AHEAD = 24 << 20, 8 << 20  # bytes that are read at once; that a record may have
_MOST_FORMS = 1 << 13  # lists of chunks that are remembered
_SECTIONS = ("state_dict_metadata", "storage_data", "planner_data")
_NO_OFFSETS = hash(b"an object")


class Checks(Records):
    """The `Shortcuts` of `pickles.walk` that check: every tensor covered, every chunk with a place.

    Each chunk with bytes needs a place. Both count by the product of the hashes of a tensor's name and of
    offsets in it. Python's hashes are secret to the process: where the two sums are equal, so are the
    chunks and the places, and nothing was kept of either. torch stores chunks without bytes as well.
    """

    def __init__(
        self, read: ReadPart, size: int, states: States, *, part: int = _PART, ahead: int = _AHEAD
    ) -> None:
        super().__init__(read(0, part), states, keep=True)
        self._read, self._part, self._ahead = read, part, ahead
        self.size = size
        self.objects: list[str] = []
        self.ends: dict[str, int] = {}  # how long each file has to be
        self.is_covered = True
        self._set_limit()
        self._needed = self._spare = self._placed = 0
        self._forms: dict[tuple[bytes, ...], tuple[int, int] | None] = {}
        self._maps: dict[str, Any] = {}  # the dict of each section, which is there once

    @property
    def is_right(self) -> bool:
        """Whether every tensor is covered, and every chunk and object has its place."""
        return self.is_covered and self._placed in (self._needed, self._needed + self._spare)

    def advance(self, memo: Memo, stack: list[Any], above: list[Any], at: int) -> int:
        """Read all the records that begin at `at`."""
        if at > self._limit:
            at = self._move_on(at)
        self._learn(memo)
        number = memo.top
        section = above[-2] if len(above) > 1 and type(above[-1]) is Map else None
        if not isinstance(section, str) or section not in _SECTIONS:
            return at
        if self._maps.setdefault(section, above[-1]) is not above[-1]:
            raise Hidden
        out: list[Any] = []
        before = -1
        while before != number:
            before = number
            if section == "state_dict_metadata":
                at, number = self._read_tensors(memo, at, number, out)
                at, number = self._read_objects(memo, at, number, out)
            elif section == "storage_data":
                at, number = self._read_places(memo, at, number, out)
            else:
                at, number = self._read_paths(memo, at, number, out)
                out.clear()
        if number > memo.top:
            memo.pass_over(number - memo.top)
            self._take(section, stack)
            stack.clear()
            self.fence = stack
        return at

    def finish(self, value: Any) -> None:
        """Take what was left to the exact walk, and see that all is metadata; raises `Damaged`, `Hidden`."""
        self._take_listing(list_metadata(value, most=self.size))
        for section, found in self._maps.items():
            if value.state.get(section) is not found or value.state[::2].count(section) != 1:
                raise Hidden

    def _take(self, section: str, stack: list[Any]) -> None:
        """Check the entries that the exact walk has read."""
        if len(stack) % 2:
            raise Hidden
        if section != "planner_data" and stack:
            entries = InertObject(Global(METADATA, "Metadata"), ())
            entries.state = Map([section, Map(stack)])
            self._take_listing(list_metadata(entries, most=self.size))

    def _take_listing(self, listing: Listing) -> None:
        for name, tensor in listing.tensors.items():
            self.tensors += 1
            self.is_covered &= covers(tensor.shape, tensor.pieces) is True
            needed, spare = _add_up((hash(write_shape(at)), sizes) for at, sizes in tensor.pieces)
            self._needed += hash(name) * needed
            self._spare += hash(name) * spare
        for name in listing.objects:
            self._keep_object([], name)
        for place in listing.places:
            offsets = _NO_OFFSETS if place.offsets is None else hash(write_shape(place.offsets))
            self._placed += hash(place.name) * offsets
            self._lengthen(place.file, place.start, place.length)

    def _keep_tensor(self, out: list[Any], name: str, dtype: str, shape: bytes, raw: list[bytes]) -> None:  # noqa: ARG002 - others keep it
        form = (shape, *raw)
        if form not in self._forms:
            if len(self._forms) > _MOST_FORMS:
                self._forms.clear()
            self._forms[form] = self._check_form(shape, raw)
        sums = self._forms[form]
        if sums is None:
            self.is_covered = False
            return
        needed, spare = sums
        self._needed += hash(name) * needed
        if spare:
            self._spare += hash(name) * spare

    def _check_form(self, shape: bytes, raw: Sequence[bytes]) -> tuple[int, int] | None:
        """Return the sums of the hashes of chunks with bytes, and without; None where they do not cover."""
        whole, read = self._shape(shape), list(map(self._shape, raw))
        pieces = list(map(Piece, read[::2], read[1::2]))
        if not is_in_a_row(whole, pieces) and covers(whole, pieces) is not True:
            return None
        return _add_up(zip(map(hash, raw[::2]), read[1::2], strict=True))

    def _keep_object(self, out: list[Any], name: str) -> None:  # noqa: ARG002 - others keep it there
        self.objects.append(name)
        self._needed += hash(name) * _NO_OFFSETS

    def _keep_place(self, out: list[Any], name: str, file: str, raw: RawPlace) -> None:  # noqa: ARG002 - others keep it
        offsets, start, length = raw
        self._placed += hash(name) * (_NO_OFFSETS if offsets is None else hash(offsets))
        self._lengthen(file, read_integer(start), read_integer(length))

    def _keep_places(self, out: list[Any], raw: tuple[bytes, ...]) -> None:  # noqa: ARG002 - others keep it
        names, ends, lengths = self._names, self.ends, self._lengths
        chunk_names = map(hash, map(names.__getitem__, raw[::5]))
        self._placed += sum(map(mul, chunk_names, map(hash, raw[1::5])))
        for get, start, length in zip(raw[2::5], raw[3::5], raw[4::5], strict=True):
            size = lengths.get(length)
            if size is None:
                size = self._read_length(length)
            file, begin = names[get], read_integer(start)
            if begin < 0 or size < 0 or file not in ends:
                self._lengthen(file, begin, size)
            elif begin + size > ends[file]:
                ends[file] = begin + size

    def _lengthen(self, file: str, start: int, length: int) -> None:
        end = start + length if start >= 0 and length >= 0 else 1 << 63
        self.ends[file] = max(end, self.ends.get(file, -1))

    def _move_on(self, at: int) -> int:
        following = self._read(self.base + len(self.data), self._part)
        if not following:
            raise Hidden  # shorter than it was: somebody writes it
        self.data, self.base = self.data[at:] + following, self.base + at
        self._set_limit()
        return 0

    def _set_limit(self) -> None:
        is_last = self.base + len(self.data) >= self.size
        self._limit = len(self.data) if is_last else len(self.data) - self._ahead


def _add_up(chunks: Iterable[tuple[int, Shape]]) -> tuple[int, int]:
    needed = spare = 0
    for hashed, sizes in chunks:
        if 0 in sizes:
            spare += hashed
        else:
            needed += hashed
    return needed, spare


def is_in_a_row(shape: Shape, pieces: Sequence[Piece]) -> bool:
    """Return whether the pieces, as they come, are slices along one axis from its beginning to its end."""
    if not pieces or any(len(part) != len(shape) for piece in pieces for part in piece):
        return False
    first = pieces[0].sizes
    axis = next((axis for axis, length in enumerate(shape) if first[axis] != length), None)
    if axis is None:
        return len(pieces) == 1 and not any(pieces[0].offsets)
    at, before, after = 0, shape[:axis], shape[axis + 1 :]
    zeros = (0,) * len(shape)
    for offsets, sizes in pieces:
        if offsets != (*zeros[:axis], at, *zeros[axis + 1 :]) or sizes[axis] < 0:
            return False
        if sizes[:axis] != before or sizes[axis + 1 :] != after:
            return False
        at += sizes[axis]
    return at >= shape[axis]


def write_shape(shape: Iterable[int]) -> bytes:
    """Write a shape as a pickler of protocol 4 does, with the memo of its tuple."""
    numbers = [_write_integer(number) for number in shape]
    if not numbers:
        return b")"
    if len(numbers) > 3:
        return b"(" + b"".join(numbers) + b"t\x94"
    return b"".join(numbers) + bytes([0x84 + len(numbers)]) + b"\x94"


def _write_integer(number: int) -> bytes:
    if 0 <= number < 1 << 8:
        return b"K%c" % number
    if 0 <= number < 1 << 16:
        return b"M" + number.to_bytes(2, "little")
    if -(1 << 31) <= number < 1 << 31:
        return b"J" + number.to_bytes(4, "little", signed=True)
    # As few bytes as hold its sign.
    length = (number.bit_length() >> 3) + 1
    return b"\x8a%c" % length + number.to_bytes(length, "little", signed=True)
