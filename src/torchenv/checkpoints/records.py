"""Shortcuts through a large DCP `.metadata`: one regular expression for each record that torch writes.

A record's expression spells out every opcode, with the memo numbers that the classes and attribute names
have in this file; so it matches nothing but that record, and its effect on stack and memo is known.
Anything else, down to a FRAME in the middle of a record, is left to the exact walk.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from torchenv.checkpoints.inert import Global, Hidden, Made, Memo, Unknown

METADATA = "torch.distributed.checkpoint.metadata"
PROPERTIES = Global(METADATA, "TensorProperties")
OLD_PROPERTIES = Global(
    "torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"
)  # 2.2
TENSOR = Global(METADATA, "TensorStorageMetadata")
OBJECT = Global(METADATA, "BytesStorageMetadata")
CHUNK = Global(METADATA, "ChunkStorageMetadata")
INDEX = Global(METADATA, "MetadataIndex")
PLACE = Global("torch.distributed.checkpoint.filesystem", "_StorageInfo")
SIZE = Global("torch", "Size")

Shape = tuple[int, ...]
Match = Callable[[bytes, int], re.Match[bytes] | None]


class Piece(NamedTuple):
    """One chunk of a tensor."""

    offsets: Shape
    sizes: Shape


class Tensor(NamedTuple):
    """One tensor: an entry of `state_dict_metadata`."""

    dtype: str
    shape: Shape
    pieces: list[Piece]


class PlaceKey(NamedTuple):
    """What an entry of `storage_data` is for: a chunk of a tensor; without offsets, an object."""

    name: str
    offsets: Shape | None


class Place(NamedTuple):
    """Where one chunk or object is stored: an entry of `storage_data`, in bytes."""

    file: str
    start: int
    length: int


class States:
    """The states of `TensorProperties`: the tuples whose sixth item 2.14 and older cannot read."""

    def __init__(self) -> None:
        self.five = 0
        self.six = array("Q")  # where the TUPLE opcode of each is
        self.others = 0  # that no release writes, or that are not written just before their use
        self.walked: list[tuple[Any, ...]] = []  # those of six that the exact walk came upon

    def note(self, state: Any, at: int | None) -> None:
        """Take down one state, as `pickles.walk` tells of it."""
        if type(state) is tuple and len(state) == 5:
            self.five += 1
        elif type(state) is tuple and len(state) == 6 and at is not None:
            self.six.append(at)
            self.walked.append(state)
        else:
            self.others += 1


class Records:
    """The `Shortcuts` of `pickles.walk` through a DCP `.metadata`.

    With `keep`, records come out as pairs of a name and a `Tensor`, and of a `PlaceKey` and a `Place`;
    without, the states of the tensors are noted and nothing else is kept.
    """

    def __init__(self, data: bytes, states: States, *, keep: bool) -> None:
        self.fence: list[Any] | None = None
        self.tensors = 0
        self._data = data
        self._states = states
        self._keep = keep
        self._names: dict[bytes, str] = {}  # by the opcode that gets each from the memo
        self._shapes: dict[bytes, Shape] = {}
        self._dtypes: dict[bytes, str] = {}  # by the opcodes of the five properties
        self._known: dict[Any, list[int]] = {}
        self._learned = 0
        self._tensor: _TensorPatterns | None = None
        self._object: Match | None = None
        self._place: Match | None = None
        self._path = _path_patterns()

    def recall(self, index: int) -> str:
        """Give a string of a record by its memo number."""
        name = self._names.get(_get(index))
        if name is None:
            raise Hidden
        return name

    def advance(self, memo: Memo, stack: list[Any], at: int) -> int:
        """Read all the records that begin at `at`."""
        self._learn(memo)
        number = memo.top
        out: list[Any] = stack if self._keep else _Nowhere()
        begin, behind = at, -1
        while behind != at:
            behind = at
            at, number = self._read_tensors(memo, at, number, out)
            at, number = self._read_objects(memo, at, number, out)
            at, number = self._read_places(memo, at, number, out)
            at, number = self._read_paths(memo, at, number, out)
        if at > begin:
            memo.pass_over(number - memo.top)
            if not self._keep:
                stack.clear()
                self.fence = stack
        return at

    def _learn(self, memo: Memo) -> None:
        """Find the memo numbers of classes and attribute names; from them, write the expressions."""
        if self._tensor and self._place and self._object:
            return
        for index, value in memo.at_hand(self._learned):
            if type(value) in (str, Global) and value in _WANTED:
                self._known.setdefault(value, []).append(index)
        self._learned = memo.top
        known = {value: _any_of(numbers) for value, numbers in self._known.items()}
        if OLD_PROPERTIES in known:
            known.setdefault(PROPERTIES, known[OLD_PROPERTIES])
        if self._tensor is None and known.keys() >= _TENSOR_WORDS:
            self._tensor = _tensor_patterns(known)
        if self._object is None and OBJECT in known:
            self._object = _compile(_NAME + known[OBJECT] + _NEW)
        if self._place is None and known.keys() >= _PLACE_WORDS:
            self._place = _place_pattern(known)

    def _read_tensors(self, memo: Memo, at: int, number: int, out: list[Any]) -> tuple[int, int]:
        if self._tensor is None:
            return at, number
        data, keep, states = self._data, self._keep, self._states
        shapes, shape_of, new = self._shapes, self._shape, tuple.__new__
        head, chunk, chunks, ends = self._tensor
        while found := head(data, at):
            text, get, five, strides, pop, shape, marked = found.groups()
            dtype = self._dtypes.get(five) or self._dtype(memo, five)
            end, pieces, count = found.end(), [], 0
            while not keep and (several := chunks(data, end)):
                end, count = several.end(), count + 8 * _AT_ONCE
            while piece := chunk(data, end):
                offsets, sizes = piece.groups()
                end = piece.end()
                count += 6 + (offsets != b")") + (sizes != b")")
                if keep:
                    both = (
                        shapes.get(offsets) or shape_of(offsets),
                        shapes.get(sizes) or shape_of(sizes),
                    )
                    pieces.append(new(Piece, both))
                if not marked:
                    break
            last = ends(data, end)
            # APPENDS for a marked list, APPEND for one chunk, neither for none.
            if last is None or last[1] != (b"e" if marked else b"a" if count else b""):
                break
            name, written = self._name(memo, number, text, get)
            if strides is None or pop:
                states.five += 1
            else:
                states.six.append(found.end(5))
            count += written + 7 + (shape != b")") + (strides not in (None, b"N", b")"))
            at, number = last.end(), number + count
            self.tensors += 1
            if keep:
                out.extend((name, Tensor(dtype, self._shape(shape), pieces)))
        return at, number

    def _read_objects(self, memo: Memo, at: int, number: int, out: list[Any]) -> tuple[int, int]:
        while self._object and (found := self._object(self._data, at)):
            name, written = self._name(memo, number, found[1], found[2])
            at, number = found.end(), number + written + 1
            out.extend((name, Made(OBJECT, ())))
        return at, number

    def _read_places(self, memo: Memo, at: int, number: int, out: list[Any]) -> tuple[int, int]:
        if self._place is None:
            return at, number
        data, keep, names, match = self._data, self._keep, self._names, self._place
        shapes, shape_of, new = self._shapes, self._shape, tuple.__new__
        while found := match(data, at):
            text, get, offsets, file_text, file_get, start, length = found.groups()
            count = 4 if offsets is None else 6 + (offsets != b")")
            if get in names and file_get in names:
                name, file = names[get], names[file_get]
            else:
                name, written = self._name(memo, number + 2, text, get)
                count += written
                file, written = self._name(memo, number + count, file_text, file_get)
                count += written
            at, number = found.end(), number + count
            if keep:
                shape = offsets and (shapes.get(offsets) or shape_of(offsets))
                place = file, _integer(start), _integer(length)
                out.extend((new(PlaceKey, (name, shape)), new(Place, place)))
        return at, number

    def _read_paths(self, memo: Memo, at: int, number: int, out: list[Any]) -> tuple[int, int]:
        """Read entries of `planner_data`: a name, and the keys that lead to its value."""
        entry, step_by_step = self._path
        while found := entry(self._data, at):
            name, count = self._name(memo, number, found[1], found[2])
            steps: list[Any] = []
            for text, get, integer in step_by_step.findall(found[3]):
                if integer:
                    steps.append(_integer(integer))
                else:
                    step, written = self._name(memo, number + count, text or None, get)
                    steps.append(step)
                    count += written
            at, number = found.end(), number + count + 1
            out.extend((name, tuple(steps)))
        return at, number

    def _name(self, memo: Memo, number: int, text: bytes | None, get: bytes) -> tuple[str, int]:
        """Give a string, and 1 if it is written here (and memoised as `number`), 0 if it was before."""
        if text is not None:
            name = str(text[1:], "utf-8", "surrogatepass")
            self._names[_get(number)] = name = name if self._keep else _UNKNOWN
            return name, 1
        known = self._names.get(get)
        if known is None:
            index = int.from_bytes(get[1:], "little")
            value = memo.get(index) if index < memo.top else None
            if type(value) not in (str, Unknown):
                raise Hidden
            self._names[get] = known = value
        return known, 0

    def _dtype(self, memo: Memo, five: bytes) -> str:
        dtype, layout, memory = (
            memo.get(int.from_bytes(get[1:], "little")) for get in _GETS.findall(five)
        )
        if type(dtype) is not Global or not type(layout) is type(memory) is Made:
            raise Hidden
        return self._dtypes.setdefault(five, str(dtype))

    def _shape(self, raw: bytes) -> Shape:
        shape = self._shapes.get(raw)
        if shape is None:
            if len(self._shapes) > _MOST_SHAPES:
                self._shapes.clear()
            shape = self._shapes[raw] = tuple(map(_integer, _INTEGERS.findall(raw)))
        return shape


class _Nowhere(list[Any]):
    """What nothing is kept in."""

    def extend(self, _: Iterable[Any]) -> None:
        pass


class _TensorPatterns(NamedTuple):
    head: Match
    chunk: Match
    chunks: Match
    ends: Match


def _tensor_patterns(known: dict[Any, bytes]) -> _TensorPatterns:
    size = known[SIZE]
    chunk = (
        known[CHUNK] + _NEW + _STATE
        + known["offsets"] + size + b"%s" + _CALLED
        + known["sizes"] + size + b"%s" + _CALLED
        + b"ub"
    )  # fmt: skip
    filled = chunk % (_FILLED, _FILLED)
    return _TensorPatterns(
        head=_compile(
            _NAME + known[TENSOR] + _NEW + _STATE
            + known["properties"] + known[PROPERTIES] + _NEW + rb"\("
            + b"(" + _GET + _GET + rb"[\x88\x89]" + _GET + rb"[\x88\x89])"
            # The strides, where 2.15 wrote them; a POP behind them, where they were taken back.
            + b"(?:(N|" + _SHAPE + b")(0?))?" + rb"t\x94b"
            + known["size"] + size + b"(" + _SHAPE + b")" + _CALLED
            + known["chunks"] + rb"\]\x94(\(?)"
        ),
        chunk=_compile(chunk % (b"(" + _SHAPE + b")", b"(" + _SHAPE + b")")),
        chunks=_compile(b"(?:" + filled + b"){%d}" % _AT_ONCE),
        ends=_compile(b"([ae]?)ub"),
    )  # fmt: skip


def _place_pattern(known: dict[Any, bytes]) -> Match:
    return _compile(
        known[INDEX] + _NEW + _STATE
        + known["fqn"] + _NAME
        + known["index"] + b"(?:N|" + _INTEGER + b")"
        + b"(?:" + known["offset"] + known[SIZE] + b"(" + _SHAPE + b")" + _CALLED + b")?"
        + b"ub" + known[PLACE] + _NEW + _STATE
        + known["relative_path"] + _NAME
        + known["offset"] + b"(" + _INTEGER + b")"
        + known["length"] + b"(" + _INTEGER + b")"
        + b"ub"
    )  # fmt: skip


@cache
def _path_patterns() -> tuple[Match, re.Pattern[bytes]]:
    entry = _compile(
        _NAME + b"((?:" + _STEP + rb"\x85|" + _STEP * 2 + rb"\x86|" + _STEP * 3 + rb"\x87"
        rb"|\(" + _STEP + rb"{4,64}t)\x94)"
    )  # fmt: skip
    return entry, re.compile(_TEXT + b"|(" + _GET + b")|(" + _INTEGER + b")", re.DOTALL)


def _any_of(numbers: list[int]) -> bytes:
    return b"(?:" + b"|".join(re.escape(_get(number)) for number in numbers) + b")"


def _get(number: int) -> bytes:
    """Write the opcode that gets a value from the memo, as a pickler does."""
    return b"h%c" % number if number < 256 else b"j" + number.to_bytes(4, "little")


def _integer(raw: bytes) -> int:
    # K. M.. J.... and \x8a with a length, as BININT1, BININT2, BININT and LONG1 are written
    op = raw[0]
    if op == 0x4B:
        return raw[1]
    return int.from_bytes(raw[1 if op != 0x8A else 2 :], "little", signed=op != 0x4D)


def _compile(pattern: bytes) -> Match:
    return re.compile(pattern, re.DOTALL).match


_AT_ONCE = 8  # chunks that one expression matches
_MOST_SHAPES = 1 << 18
_UNKNOWN = Unknown("?")

_NEW = rb"\)\x81\x94"  # EMPTY_TUPLE NEWOBJ MEMOIZE
_STATE = rb"\}\x94\("  # EMPTY_DICT MEMOIZE MARK
_CALLED = rb"\x85\x94R\x94"  # TUPLE1 MEMOIZE REDUCE MEMOIZE
_GET = rb"(?:h.|j....)"
_INTEGER = (
    rb"(?:K.|M..|J....|\x8a(?:" + b"|".join(b"\\x%02x.{%d}" % (n, n) for n in range(1, 9)) + b"))"
)
_FILLED = (
    b"(?:" + _INTEGER + rb"\x85\x94|" + _INTEGER * 2 + rb"\x86\x94|" + _INTEGER * 3 + rb"\x87\x94"
    rb"|\(" + _INTEGER + rb"{4,64}t\x94)"
)
_SHAPE = rb"(?:\)|" + _FILLED + b")"
_TEXT = rb"\x8c((?:" + b"|".join(b"\\x%02x.{%d}" % (n, n) for n in range(256)) + rb"))\x94"
_NAME = b"(?:" + _TEXT + b"|(" + _GET + b"))"
_STEP = b"(?:" + _TEXT.replace(b"((?:", b"(?:(?:") + b"|" + _GET + b"|" + _INTEGER + b")"
_GETS = re.compile(_GET, re.DOTALL)
_INTEGERS = re.compile(_INTEGER, re.DOTALL)

_TENSOR_WORDS = {
    PROPERTIES, TENSOR, CHUNK, SIZE, "properties", "size", "chunks", "offsets", "sizes"
}  # fmt: skip
_PLACE_WORDS = {INDEX, PLACE, SIZE, "fqn", "index", "offset", "relative_path", "length"}
_WANTED = _TENSOR_WORDS | _PLACE_WORDS | {OBJECT, OLD_PROPERTIES}
