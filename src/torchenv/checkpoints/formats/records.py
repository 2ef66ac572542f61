"""Shortcuts through a large DCP `.metadata`: a regular expression for each record of torch's.

A record's expression spells out every opcode, with the memo numbers that the classes and
attribute names have in this file; so it matches nothing but that record, and its effect on stack
and memo is known. Anything else, down to a FRAME in the middle of a record, is left to the exact
walk.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, NamedTuple

from torchenv.checkpoints.formats.inert import Global, Hidden, InertObject, Memo, Unknown

METADATA = "torch.distributed.checkpoint.metadata"
PROPERTIES = Global(METADATA, "TensorProperties")
OLD_PROPERTIES = Global("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties")  # 2.2
TENSOR = Global(METADATA, "TensorStorageMetadata")
OBJECT = Global(METADATA, "BytesStorageMetadata")
CHUNK = Global(METADATA, "ChunkStorageMetadata")
INDEX = Global(METADATA, "MetadataIndex")
PLACE = Global("torch.distributed.checkpoint.filesystem", "_StorageInfo")
SIZE = Global("torch", "Size")

Shape = tuple[int, ...]
RawPlace = tuple[bytes | None, bytes, bytes]  # offsets, start and length, as they are written
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


class ChunkPlace(NamedTuple):
    """Where a chunk is stored or, without offsets, an object: an entry of `storage_data`."""

    name: str
    offsets: Shape | None
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

    With `keep`, records come out as a name with its `Tensor`, and as a `Place` with None;
    without, the states of the tensors are noted and nothing else is kept.
    """

    def __init__(self, data: bytes, states: States, *, keep: bool) -> None:
        self.fence: list[Any] | None = None
        self.base, self.size = 0, len(data)
        self.tensors = 0
        self._limit = len(data)  # the place in `data` from which on the next part of it is wanted
        self.data = data
        self._states = states
        self._keep = keep
        self._names: dict[bytes, str] = {}  # by the opcode that gets each from the memo
        self._shapes: dict[bytes, Shape] = {}
        self._lengths: dict[bytes, int] = {}
        self._dtypes: dict[bytes, str] = {}  # by the opcodes of the five properties
        self._known: dict[Any, list[int]] = {}
        self._learned = 0
        self._tensor: _TensorPatterns | None = None
        self._object: Match | None = None
        self._place: tuple[Match, Match] | None = None
        self._path = _path_patterns()

    def recall(self, index: int) -> str:
        """Return a string of a record by its memo number."""
        name = self._names.get(_get(index))
        if name is None:
            raise Hidden
        return name

    def advance(self, memo: Memo, stack: list[Any], above: list[Any], at: int) -> int:  # noqa: ARG002 - a port
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
        """Find the memo numbers of classes and attribute names, and write the expressions."""
        if self._tensor and self._place:
            return
        for index, value in memo.at_hand(self._learned):
            if type(value) in (str, Global) and value in _WANTED:
                numbers = self._known.setdefault(value, [])
                # A pickler memoises each once; what is left out here is left to the exact walk.
                if len(numbers) < _MOST_NUMBERS:
                    numbers.append(index)
        self._learned = memo.top
        known = {value: _any_of(numbers) for value, numbers in self._known.items()}
        if OLD_PROPERTIES in known:
            known.setdefault(PROPERTIES, known[OLD_PROPERTIES])
        if self._tensor is None and known.keys() >= _TENSOR_WORDS:
            self._tensor = _tensor_patterns(known)
        if self._object is None and OBJECT in known:
            self._object = _compile(_NAME + known[OBJECT] + _NEW)
        if self._place is None and known.keys() >= _PLACE_WORDS:
            self._place = _place_patterns(known)

    def _read_tensors(self, memo: Memo, at: int, number: int, out: list[Any]) -> tuple[int, int]:
        if self._tensor is None:
            return at, number
        data, keep, states = self.data, self._keep, self._states
        head, chunk, chunks, ends = self._tensor
        while True:
            if at > self._limit:
                at = self._move_on(at)
                data = self.data
            found = head(data, at)
            if found is None:
                break
            text, get, five, strides, pop, shape, marked = found.groups()
            dtype = self._dtypes.get(five) or self._dtype(memo, five)
            end, count = found.end(), 0
            raw: list[bytes] = []  # offsets, sizes, offsets, sizes, …
            while marked and (several := chunks(data, end)):
                end, count = several.end(), count + 8 * _AT_ONCE
                if keep:
                    raw += several.groups()
            while piece := chunk(data, end):
                offsets, sizes = piece.groups()
                end = piece.end()
                count += 6 + (offsets != b")") + (sizes != b")")
                if keep:
                    raw += (offsets, sizes)
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
                states.six.append(self.base + found.end(5))
            count += written + 7 + (shape != b")") + (strides not in (None, b"N", b")"))
            at, number = last.end(), number + count
            self.tensors += 1
            if keep:
                self._keep_tensor(out, name, dtype, shape, raw)
        return at, number

    def _read_objects(self, memo: Memo, at: int, number: int, out: list[Any]) -> tuple[int, int]:
        while self._object and (found := self._object(self.data, at)):
            name, written = self._name(memo, number, found[1], found[2])
            at, number = found.end(), number + written + 1
            self._keep_object(out, name)
            if at > self._limit:
                at = self._move_on(at)
        return at, number

    def _read_places(self, memo: Memo, at: int, number: int, out: list[Any]) -> tuple[int, int]:
        if self._place is None:
            return at, number
        data, keep, names = self.data, self._keep, self._names
        place, places = self._place
        while True:
            if at > self._limit:
                at = self._move_on(at)
                data = self.data
            found = place(data, at)
            if found is None:
                break
            text, get, offsets, file_text, file_get, start, length = found.groups()
            name, written = self._name(memo, number + 2, text, get)
            count = written + (4 if offsets is None else 6 + (offsets != b")"))
            file, written = self._name(memo, number + count, file_text, file_get)
            at, number = found.end(), number + count + written
            if keep:
                self._keep_place(out, name, file, (offsets, start, length))
            while several := places(data, at):
                raw = several.groups()
                if not names.keys() >= {*raw[::5], *raw[2::5]}:
                    break
                at, number = several.end(), number + 7 * _AT_ONCE
                if keep:
                    self._keep_places(out, raw)
                if at > self._limit:
                    break
        return at, number

    def _keep_tensor(self, out: list[Any], name: str, dtype: str, shape: bytes, raw: list[bytes]) -> None:
        """Keep a tensor, with the offsets and sizes of its chunks as they are written."""
        shapes, shape_of = self._shapes, self._shape
        read = [shapes.get(item) or shape_of(item) for item in raw]
        pieces = list(map(_as_piece, zip(read[::2], read[1::2], strict=True)))
        out.extend((name, Tensor(dtype, shape_of(shape), pieces)))

    def _keep_object(self, out: list[Any], name: str) -> None:
        out.extend((name, InertObject(OBJECT, ())))

    def _keep_place(self, out: list[Any], name: str, file: str, raw: RawPlace) -> None:
        """Keep the place of a chunk or, without offsets, of an object."""
        offsets, start, length = raw
        shape = None if offsets is None else self._shape(offsets)
        out.extend((ChunkPlace(name, shape, file, read_integer(start), read_integer(length)), None))

    def _keep_places(self, out: list[Any], raw: tuple[bytes, ...]) -> None:
        """Keep several places: of each the opcodes of its name, offsets, file, start and length."""
        names, shapes, shape_of, lengths = self._names, self._shapes, self._shape, self._lengths
        for get, offsets, file_get, start, length in zip(
            raw[::5], raw[1::5], raw[2::5], raw[3::5], raw[4::5], strict=True
        ):
            size = lengths.get(length)
            if size is None:
                size = self._read_length(length)
            shape = shapes.get(offsets) or shape_of(offsets)
            out.extend((_as_place((names[get], shape, names[file_get], read_integer(start), size)), None))

    def _read_length(self, raw: bytes) -> int:
        """Return a length; the chunks of one tensor are mostly of one."""
        if len(self._lengths) > _MOST_LENGTHS:
            self._lengths.clear()
        size = self._lengths[raw] = read_integer(raw)
        return size

    def _move_on(self, at: int) -> int:
        """Go on to the next part of the data; return the place in it."""
        raise NotImplementedError

    def _read_paths(self, memo: Memo, at: int, number: int, out: list[Any]) -> tuple[int, int]:
        """Read entries of `planner_data`: a name, and the keys that lead to its value."""
        entry, step_by_step = self._path
        while found := entry(self.data, at):
            name, count = self._name(memo, number, found[1], found[2])
            steps: list[Any] = []
            for text, get, integer in step_by_step.findall(found[3]):
                if integer:
                    steps.append(read_integer(integer))
                else:
                    step, written = self._name(memo, number + count, text or None, get)
                    steps.append(step)
                    count += written
            at, number = found.end(), number + count + 1
            out.extend((name, tuple(steps)))
            if at > self._limit:
                at = self._move_on(at)
        return at, number

    def _name(self, memo: Memo, number: int, text: bytes | None, get: bytes) -> tuple[str, int]:
        """Return a string, and 1 if it is written here, as memo `number`, or 0 if it was before."""
        if text is not None:
            name = str(text[1:], "utf-8", "surrogatepass")
            self._names[_get(number)] = name = name if self._keep else _UNKNOWN
            return name, 1
        if get not in self._names:
            index = int.from_bytes(get[1:], "little")
            value = memo.get(index) if index < memo.top else None
            if not isinstance(value, str):
                raise Hidden
            self._names[get] = value
        return self._names[get], 0

    def _dtype(self, memo: Memo, five: bytes) -> str:
        dtype, layout, memory = (memo.get(int.from_bytes(get[1:], "little")) for get in _GETS.findall(five))
        if type(dtype) is not Global or not type(layout) is type(memory) is InertObject:
            raise Hidden
        return self._dtypes.setdefault(five, str(dtype))

    def _shape(self, raw: bytes) -> Shape:
        shape = self._shapes.get(raw)
        if shape is None:
            if len(self._shapes) > _MOST_SHAPES:
                self._shapes.clear()
            shape = self._shapes[raw] = _integers(raw)
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

    def chunk(shape: bytes) -> bytes:
        offsets = known["offsets"] + size + b"(" + shape + b")" + _CALLED
        sizes = known["sizes"] + size + b"(" + shape + b")" + _CALLED
        return known[CHUNK] + _NEW + _STATE + offsets + sizes + b"ub"

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
        chunk=_compile(chunk(_SHAPE)),
        chunks=_compile(chunk(_FILLED) * _AT_ONCE),
        ends=_compile(b"([ae]?)ub"),
    )  # fmt: skip


def _place_patterns(known: dict[Any, bytes]) -> tuple[Match, Match]:
    """Write expressions for one entry of `storage_data`, and for several frequent ones."""

    def offsets(shape: bytes) -> bytes:
        return known["offset"] + known[SIZE] + b"(" + shape + b")" + _CALLED

    start = known[INDEX] + _NEW + _STATE + known["fqn"]
    index = known["index"] + b"(?:N|" + _INTEGER + b")"
    middle = b"ub" + known[PLACE] + _NEW + _STATE + known["relative_path"]
    end = known["offset"] + b"(" + _INTEGER + b")" + known["length"] + b"(" + _INTEGER + b")ub"
    got = b"(" + _GET + b")"
    some = start + _NAME + index + b"(?:" + offsets(_SHAPE) + b")?" + middle + _NAME + end
    frequent = start + got + index + offsets(_FILLED) + middle + got + end
    return _compile(some), _compile(frequent * _AT_ONCE)


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


def read_integer(raw: bytes) -> int:
    """Return a number that is written as one opcode."""
    # K. M.. J.... and \x8a with a length, as BININT1, BININT2, BININT and LONG1 are written
    op = raw[0]
    if op == 0x4B:
        return raw[1]
    return int.from_bytes(raw[1 if op != 0x8A else 2 :], "little", signed=op != 0x4D)


def _integers(raw: bytes) -> Shape:
    at = 1 if raw[0] in b"(" else 0
    values = []
    while True:
        op = raw[at]
        if op == 0x4B:
            values.append(raw[at + 1])
            at += 2
        elif op == 0x4D:
            values.append(raw[at + 1] | raw[at + 2] << 8)
            at += 3
        elif op in (0x4A, 0x8A):
            end = at + (5 if op == 0x4A else 2 + raw[at + 1])
            values.append(read_integer(raw[at:end]))
            at = end
        else:
            return tuple(values)


def _compile(pattern: bytes) -> Match:
    return re.compile(pattern, re.DOTALL).match


_AT_ONCE = 8  # chunks that one expression matches
_MOST_SHAPES = 1 << 16
_MOST_LENGTHS = 1 << 12
_MOST_NUMBERS = 4  # memo numbers of one class or attribute name that an expression spells out
_UNKNOWN = Unknown("?")
_as_piece = partial(tuple.__new__, Piece)
_as_place = partial(tuple.__new__, ChunkPlace)

_NEW = rb"\)\x81\x94"  # EMPTY_TUPLE NEWOBJ MEMOIZE
_STATE = rb"\}\x94\("  # EMPTY_DICT MEMOIZE MARK
_CALLED = rb"\x85\x94R\x94"  # TUPLE1 MEMOIZE REDUCE MEMOIZE
_GET = rb"(?:h.|j....)"
_INTEGER = rb"(?:K.|M..|J....|\x8a(?:" + b"|".join(b"\\x%02x.{%d}" % (n, n) for n in range(1, 9)) + b"))"
# One to three in a row and TUPLE1 to TUPLE3, or MARK, more of them, and TUPLE.
_FILLED = (
    b"(?:" + _INTEGER + rb"(?:\x85|" + _INTEGER + rb"(?:\x86|" + _INTEGER + rb"\x87))"
    rb"|\(" + _INTEGER + rb"{4,64}t)\x94"
)
_SHAPE = rb"(?:\)|" + _FILLED + b")"
_TEXT = rb"\x8c((?:" + b"|".join(b"\\x%02x.{%d}" % (n, n) for n in range(256)) + rb"))\x94"
_NAME = b"(?:" + _TEXT + b"|(" + _GET + b"))"
_STEP = b"(?:" + _TEXT.replace(b"((?:", b"(?:(?:") + b"|" + _GET + b"|" + _INTEGER + b")"
_GETS = re.compile(_GET, re.DOTALL)

_TENSOR_WORDS = {
    PROPERTIES, TENSOR, CHUNK, SIZE, "properties", "size", "chunks", "offsets", "sizes"
}  # fmt: skip
_PLACE_WORDS = {INDEX, PLACE, SIZE, "fqn", "index", "offset", "relative_path", "length"}
_WANTED = _TENSOR_WORDS | _PLACE_WORDS | {OBJECT, OLD_PROPERTIES}
