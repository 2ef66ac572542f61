"""Walks the opcodes of a pickle and says what it would make, without making or running any of it.

Nothing here imports `pickle`: names stay names, calls stay written down, and containers are
lists, so that nothing of the file is hashed, compared or run. What a file may cost is bounded
before anything is made: memory by the file's size, memo numbers by its length, open marks by
`DEEPEST`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import unpack_from
from typing import Any, Protocol

from torchenv.checkpoints.formats.inert import (
    Damaged,
    Global,
    Hidden,
    InertObject,
    Map,
    Memo,
    Stored,
    Unknown,
)

DEEPEST = 1_000  # open marks; torch writes 6
LARGEST = 1 << 30  # bytes of one pickle; the `.metadata` of 100,000 tensors in 8 chunks has 0.12 GB
_ROOM, _ROOM_A_BYTE = 24 << 20, 11  # bytes that the values may take, beside the stack and the memo
_LONGEST_NUMBER = 1_000  # characters; Python turns longer ones into numbers slowly
_LONGEST_LINE = 4096
_LONGEST_NAME = 1_000  # characters of a module and of what is imported of it

# What is told of an object that is given its state: the state, and where the TUPLE is that made
# it if that is written just before.
Watch = Callable[[Any, int | None], None]


# Python 3.11.0 to 3.11.3 pickle the member of an Enum as `getattr(Class, "NAME")`.
GETATTR = Global("builtins", "getattr")
DTYPE = Global("numpy", "dtype")


@dataclass(slots=True)
class PickleWalk:
    """What one pickle holds."""

    value: Any = None
    end: int = 0  # the first byte behind the STOP
    protocol: int = 0
    globals: dict[Global, int] = field(default_factory=dict)  # with the place of its first use
    calls: dict[Global, int] = field(default_factory=dict)  # how often each is called
    # How often a name is taken out of a class by `getattr`, and nothing else is made of that.
    taken: dict[tuple[Global, str], int] = field(default_factory=dict)
    dtypes: set[str] = field(default_factory=set)  # numpy's, as it writes them: f4, i8, U5
    stored: list[Any] = field(default_factory=list)  # the references to what is outside
    fetched: list[tuple[Any, ...]] = field(default_factory=list)  # tuples that are used again
    frames: list[tuple[int, int]] = field(default_factory=list)  # where each FRAME is, its length


class Shortcuts(Protocol):
    """Reads the many opcodes of a record that it knows at once; it is exact, or it declines."""

    # The list, if any, that lacks members because their values were not kept.
    fence: list[Any] | None
    # What is read now: all of the pickle, or a part of it that begins at `base`, of `size` bytes in all.
    data: bytes
    base: int
    size: int

    def recall(self, index: int) -> Any:
        """Return a memoised string of a record; raises `Hidden` for anything else."""

    def advance(self, memo: Memo, stack: list[Any], above: list[Any], at: int) -> int:
        """Read records from `at`, as their opcodes would; return the place behind the last one.

        `above` is the stack below the last mark. `data` and `base` may be others afterwards.
        """


def walk(
    data: bytes,
    start: int = 0,
    *,
    watched: Mapping[Global, Watch] | None = None,
    shortcuts: Shortcuts | None = None,
) -> PickleWalk:
    """Walk the pickle that begins at `start`.

    Raises `Damaged` for what no unpickler takes and for what asks for more than the bounds;
    `Hidden`, only with shortcuts, where the file does with a record what records are not for.
    """
    size = shortcuts.size if shortcuts else len(data)
    if size - start > LARGEST:
        raise Damaged("pickle-too-large", f"a pickle of {size} bytes is too large to open")
    found = PickleWalk()
    try:
        _run(data, start, watched or {}, shortcuts, found)
    except IndexError:
        if shortcuts is not None and shortcuts.base + len(shortcuts.data) < size:
            raise Hidden from None
        message = "the pickle ends early, or uses what is missing"
        damaged = Damaged("pickle-truncated", message)
    except UnicodeDecodeError:
        damaged = Damaged("pickle-damaged", "a string in the pickle is not text")
    except Damaged as error:
        damaged = error
    else:
        return found
    damaged.names = tuple(found.globals)
    raise damaged from None


def _run(  # noqa: PLR0915 - one loop over the opcodes is the fast way, and reads as their table
    data: bytes,
    at: int,
    watched: Mapping[Global, Watch],
    shortcuts: Shortcuts | None,
    found: PickleWalk,
) -> None:
    size, base = (shortcuts.size if shortcuts else len(data)), 0
    room = (size - at) * _ROOM_A_BYTE + _ROOM
    stack: list[Any] = []
    marks: list[list[Any]] = []
    memo = Memo(shortcuts.recall if shortcuts else _nothing)
    values, first = memo.values, 0
    fence: list[Any] | None = None
    tuple_at, newest = -1, None  # where the last TUPLE is, and what it made

    while True:
        op = data[at]
        at += 1
        resume = False  # a place where a record may begin
        if op == 0x68:  # BINGET
            index = data[at]
            at += 1
            item = values[index - first] if index >= first else memo.get(index)
            stack.append(item)
            if type(item) is tuple:
                found.fetched.append(item)
        elif op == 0x94:  # MEMOIZE
            values.append(stack[-1])
        elif op == 0x6A:  # LONG_BINGET
            index = int.from_bytes(data[at : at + 4], "little")
            at += 4
            item = values[index - first] if index >= first else memo.get(index)
            stack.append(item)
            if type(item) is tuple:
                found.fetched.append(item)
        elif op == 0x4B:  # BININT1
            stack.append(data[at])
            at += 1
        elif 0x85 <= op <= 0x87:  # TUPLE1, TUPLE2, TUPLE3
            count = op - 0x84
            if len(stack) < count:
                raise IndexError
            tuple_at, newest = at - 1, tuple(stack[-count:])
            stack[-count:] = [newest]
            room -= 48 + 8 * count
            if data[at] == 0x94:
                values.append(newest)
                at += 1
                resume = True
        elif op in (0x52, 0x81):  # REDUCE, NEWOBJ
            arguments = stack.pop()
            maker = stack[-1]
            if type(maker) is Global:
                found.calls[maker] = found.calls.get(maker, 0) + 1
                if maker in (GETATTR, DTYPE):
                    _note_arguments(found, maker, arguments)
            stack[-1] = InertObject(maker, arguments)
            room -= 64
        elif op == 0x28:  # MARK
            if len(marks) == DEEPEST:
                raise Damaged("pickle-too-deep", f"the pickle nests deeper than {DEEPEST}")
            marks.append(stack)
            stack = []
            resume = True
        elif op == 0x29:  # EMPTY_TUPLE
            stack.append(())
        elif op == 0x7D:  # EMPTY_DICT
            stack.append(Map())
            room -= 72
        elif op == 0x75:  # SETITEMS
            items, stack = stack, marks.pop()
            _set_items(stack[-1], items)
            room -= 12 * len(items)
        elif op == 0x62:  # BUILD
            state = stack.pop()
            thing = stack[-1]
            if type(thing) is InertObject:
                thing.state = state
                if type(thing.maker) is Global and thing.maker in watched:
                    # Only a TUPLE right before its use is looked at: a slice up to a far one would be long.
                    near = state is newest and at - tuple_at <= 3
                    inline = near and data[tuple_at + 1 : at] in (b"\x94b", b"b")
                    watched[thing.maker](state, tuple_at if inline else None)
            elif not isinstance(thing, (Global, Stored)):
                raise Damaged("pickle-damaged", "the pickle sets the state of what has none")
            resume = True
        elif op in (0x8C, 0x58, 0x8D):  # SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
            raw, at = _read_counted(data, at, {0x8C: 1, 0x58: 4, 0x8D: 8}[op])
            stack.append(str(raw, "utf-8", "surrogatepass"))
            room -= 56 + 4 * len(raw)
        elif op == 0x71:  # BINPUT
            if shortcuts is not None:
                raise Hidden
            _put(values, data[at], stack[-1])
            at += 1
        elif op == 0x4D:  # BININT2
            stack.append(data[at] | data[at + 1] << 8)
            at += 2
            room -= 32
        elif op == 0x4A:  # BININT
            stack.append(unpack_from("<i", _some(data, at, 4))[0])
            at += 4
            room -= 32
        elif op == 0x5D or op == 0x8F:  # noqa: PLR1714 - EMPTY_LIST, EMPTY_SET
            stack.append([])
            room -= 72
        elif op in (0x88, 0x89):  # NEWTRUE, NEWFALSE
            stack.append(op == 0x88)
        elif op == 0x4E:  # NONE
            stack.append(None)
        elif op == 0x61:  # APPEND
            item = stack.pop()
            _extend(stack[-1], [item])
            room -= 12
        elif op in (0x65, 0x90):  # APPENDS, ADDITEMS
            if stack is fence:
                raise Hidden
            items, stack = stack, marks.pop()
            _extend(stack[-1], items)
            room -= 12 * len(items)
        elif op in (0x74, 0x6C, 0x91):  # TUPLE, LIST, FROZENSET
            if stack is fence:
                raise Hidden
            items, stack = stack, marks.pop()
            room -= 56 + 12 * len(items)
            if op == 0x74:
                tuple_at, newest = at - 1, tuple(items)
            stack.append(newest if op == 0x74 else items)
            if data[at] == 0x94:
                values.append(stack[-1])
                at += 1
                resume = True
        elif op == 0x73:  # SETITEM
            item = stack.pop()
            _set_items(stack[-2], [stack.pop(), item])
            room -= 24
        elif op == 0x93:  # STACK_GLOBAL
            name = stack.pop()
            stack[-1] = _global(found, stack[-1], name, base + at - 1)
            room -= 160
        elif op == 0x63:  # GLOBAL
            module, at = _line(data, at)
            name, at = _line(data, at)
            stack.append(_global(found, module, name, base + at - 1))
            room -= 160
        elif op == 0x51:  # BINPERSID
            stack[-1] = Stored(stack[-1])
            found.stored.append(stack[-1].reference)
            room -= 72
        elif op == 0x95:  # FRAME
            length = unpack_from("<Q", _some(data, at, 8))[0]
            found.frames.append((base + at - 1, length))
            at += 8
            if length > size - base - at:
                raise Damaged("pickle-truncated", "the pickle ends inside a frame")
            room -= 100
        elif op == 0x2E:  # STOP
            found.value, found.end = stack.pop(), base + at
            if marks or stack is fence:
                raise Damaged("pickle-damaged", "the pickle stops inside a container")
            return
        elif op == 0x80:  # PROTO
            found.protocol = max(found.protocol, data[at])
            at += 1
            if found.protocol > 5:
                raise Damaged("pickle-damaged", f"there is no pickle protocol {found.protocol}")
        elif op == 0x72:  # LONG_BINPUT
            if shortcuts is not None:
                raise Hidden
            _put(values, unpack_from("<I", _some(data, at, 4))[0], stack[-1])
            at += 4
        elif op == 0x70:  # PUT
            text, at = _line(data, at)
            if shortcuts is not None:
                raise Hidden
            _put(values, _whole(text), stack[-1])
        elif op == 0x67:  # GET
            text, at = _line(data, at)
            stack.append(memo.get(_whole(text)))
            if type(stack[-1]) is tuple:
                found.fetched.append(stack[-1])
        elif op == 0x30:  # POP
            if stack:
                stack.pop()
            elif stack is fence:
                raise Hidden
            else:
                stack = marks.pop()
        elif op == 0x31:  # POP_MARK
            stack = marks.pop()
        elif op == 0x32:  # DUP
            stack.append(stack[-1])
        elif op == 0x64:  # DICT
            if stack is fence:
                raise Hidden
            items, stack = stack, marks.pop()
            stack.append(Map())
            _set_items(stack[-1], items)
            room -= 72 + 12 * len(items)
        elif op in (0x69, 0x6F):  # INST, OBJ
            if stack is fence:
                raise Hidden
            items, stack = stack, marks.pop()
            if op == 0x69:
                module, at = _line(data, at)
                name, at = _line(data, at)
                maker = _global(found, module, name, base + at - 1)
            else:
                maker = items.pop(0)
            if type(maker) is Global:
                found.calls[maker] = found.calls.get(maker, 0) + 1
            stack.append(InertObject(maker, items))
            room -= 300
        elif op == 0x92:  # NEWOBJ_EX
            stack.pop()
            arguments = stack.pop()
            maker = stack[-1]
            if type(maker) is Global:
                found.calls[maker] = found.calls.get(maker, 0) + 1
            stack[-1] = InertObject(maker, arguments)
            room -= 64
        elif op == 0x50:  # PERSID
            text, at = _line(data, at)
            stack.append(Stored(text))
            found.stored.append(text)
            room -= 120 + len(text)
        else:
            value, at = _plain(data, op, at)
            stack.append(value)
            room -= 64 + (4 * len(value) if isinstance(value, (str, bytes)) else 0)

        if room < 0:
            raise Damaged("pickle-too-large", "the pickle would make far more than its own size")
        if resume and shortcuts is not None and len(marks) == 2:
            at = shortcuts.advance(memo, stack, marks[-1], at)
            values, first, fence = memo.values, memo.start, shortcuts.fence
            if shortcuts.data is not data:
                data, base, newest = shortcuts.data, shortcuts.base, None


def _plain(data: bytes, op: int, at: int) -> tuple[Any, int]:
    """Read one of the opcodes that put a number or a string on the stack, the seldom ones."""
    if op == 0x47:  # BINFLOAT
        return unpack_from(">d", _some(data, at, 8))[0], at + 8
    if op in (0x8A, 0x8B):  # LONG1, LONG4
        number, at = _read_counted(data, at, 1 if op == 0x8A else 4)
        if len(number) > _LONGEST_NUMBER:
            raise Damaged("pickle-too-large", f"the pickle holds a number of {len(number)} bytes")
        return int.from_bytes(number, "little", signed=True), at
    if op in (0x43, 0x55):  # SHORT_BINBYTES, SHORT_BINSTRING
        return _read_counted(data, at, 1)
    if op in (0x42, 0x54):  # BINBYTES, BINSTRING
        return _read_counted(data, at, 4)
    if op in (0x8E, 0x96):  # BINBYTES8, BYTEARRAY8
        return _read_counted(data, at, 8)
    if op in (0x49, 0x4C):  # INT, LONG
        text, at = _line(data, at)
        return _whole(text.removesuffix("L")), at
    if op == 0x46:  # FLOAT
        text, at = _line(data, at)
        try:
            return float(text), at
        except ValueError:
            raise Damaged("pickle-damaged", "the pickle has an invalid number") from None
    if op in (0x53, 0x56):  # STRING, UNICODE: kept as they are written
        return _line(data, at)
    if op in (0x82, 0x83, 0x84):  # EXT1, EXT2, EXT4: names that only the reader's registry knows
        width = 1 << (op - 0x82)
        return f"extension {int.from_bytes(_some(data, at, width), 'little')}", at + width
    raise Damaged("pickle-damaged", f"byte {op:#04x} at {at - 1} is not a pickle opcode")


def _read_counted(data: bytes, at: int, width: int) -> tuple[bytes, int]:
    start = at + width
    count = int.from_bytes(_some(data, at, width), "little")
    return _some(data, start, count), start + count


def _some(data: bytes, at: int, count: int) -> bytes:
    if count > len(data) - at:
        raise IndexError
    return data[at : at + count]


def _line(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\n", at, at + _LONGEST_LINE)
    if end < 0:
        raise Damaged("pickle-damaged", "a line in the pickle does not end")
    return data[at:end].decode(), end + 1


def _whole(text: str) -> int:
    if len(text) > _LONGEST_NUMBER or not text.removeprefix("-").isascii():
        raise Damaged("pickle-too-large", f"the pickle holds a number of {len(text)} characters")
    try:
        return int(text)
    except ValueError:
        raise Damaged("pickle-damaged", "the pickle has an invalid number") from None


def _put(values: list[Any], index: int, value: Any) -> None:
    # Picklers number without gaps; what sets a memo far ahead only wants the memory.
    if not 0 <= index <= len(values):
        message = f"the pickle sets memo {index} where {len(values)} are set"
        raise Damaged("pickle-memo-index", message)
    values[index : index + 1] = [value]


_ORDERED = Global("collections", "OrderedDict")


def _set_items(target: Any, items: list[Any]) -> None:
    if len(items) % 2:
        raise Damaged("pickle-damaged", "the pickle sets a key without its value")
    if type(target) is Map:
        target.extend(items)
    elif type(target) is not InertObject:
        raise Damaged("pickle-damaged", "the pickle sets items of what is not a dict")
    elif target.maker == _ORDERED:
        # What Module.state_dict() gives.
        target.items = target.items or Map()
        target.items.extend(items)


def _extend(target: Any, items: list[Any]) -> None:
    if type(target) is list:
        target.extend(items)
    elif type(target) is not InertObject:
        raise Damaged("pickle-damaged", "the pickle appends to what is not a list")


def _global(found: PickleWalk, module: Any, name: Any, at: int) -> Global:
    if type(module) is Unknown or type(name) is Unknown:
        raise Hidden
    if type(module) is not str or type(name) is not str:
        raise Damaged("pickle-damaged", "the pickle imports what is not a name")
    if len(module) > _LONGEST_NAME or len(name) > _LONGEST_NAME:
        raise Damaged("pickle-damaged", f"the pickle imports a name of {len(module) + len(name)} characters")
    known = Global(module, name)
    found.globals.setdefault(known, at)
    return known


def _note_arguments(found: PickleWalk, maker: Global, arguments: Any) -> None:
    if maker == DTYPE:
        # dtype("f4", False, True); as a string of Python 2 it is bytes.
        written = arguments[0] if type(arguments) is tuple and arguments else None
        if type(written) is str and len(written) < 20 and len(found.dtypes) < 100:
            found.dtypes.add(written)
        return
    well_formed = type(arguments) is tuple and tuple(map(type, arguments)) == (Global, str)
    # An Enum has a few members; who takes more names than that is not after one.
    if well_formed and (arguments in found.taken or len(found.taken) < 100):
        found.taken[arguments] = found.taken.get(arguments, 0) + 1


def _nothing(index: int) -> Any:
    raise Damaged("pickle-damaged", f"uses memo {index}, which is not set")
