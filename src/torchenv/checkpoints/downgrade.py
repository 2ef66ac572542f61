"""Rewrites the `.metadata` of a distributed checkpoint so that older releases read it.

Only bytes are put in: a POP before the TUPLE of each state that has strides, so that it has five
items again, and `pathlib` behind the name that only Python 3.13 has. What was written before is
still built and memoised, so every memo number stays right; the lengths of the FRAMEs grow by what
was put in.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import field

from torchenv.checkpoints.formats.dcp import Facts, features, read_facts
from torchenv.checkpoints.formats.inert import Damaged, Global
from torchenv.checkpoints.readability import list_mended, rules
from torchenv.checkpoints.values import some
from torchenv.errors import NothingSuits
from torchenv.system.values import frozen

_POP = b"0"
_LOCAL = "pathlib._local"
_LOCAL_TEXT = b"\x8c\x0epathlib._local\x94"  # SHORT_BINUNICODE, MEMOIZE
_PLAIN_TEXT = _POP + b"\x8c\x07pathlib"
_FRAME = 9  # bytes of the opcode with its length


@frozen(kw_only=True)
class Downgraded:
    """A `.metadata` that older releases read, and how much was changed for that."""

    data: bytes = field(repr=False)
    strides: int
    paths: int


def downgrade(data: bytes, target: str, *, portable_path: bool = False) -> Downgraded:
    """Rewrite a `.metadata` for torch `target`; verify that only the strides are different.

    Raises `Damaged` if it cannot be read, `NothingSuits` if it cannot be rewritten safely, or
    would still not be read by `target`. A file that needs no change comes back as it is.
    """
    facts = read_facts(data)
    gone = list_mended(portable_path=portable_path)
    codes, foreign = features(facts)
    if foreign:
        raise _refuse(f"it would import names that no release writes: {some(foreign)}")
    if facts.states.others:
        raise _refuse("some of its tensors have properties that no release writes")
    walked = set(map(id, facts.states.walked))
    if any(id(state) in walked for state in facts.walked.fetched):
        raise _refuse("properties of its tensors are used in other places, too")
    reader = rules().reader(code for code in codes if code not in gone)
    if target not in reader.torch:
        reasons = "; ".join(note.message for note in reader.because if _needs(note.code, target))
        raise _refuse(f"torch {target} would not read it without strides either: {reasons}")
    paths = _paths(data, facts) if portable_path else []
    insertions = sorted([(at, _POP) for at in facts.states.six] + paths)
    if not insertions:
        return Downgraded(data=data, strides=0, paths=0)
    if facts.walked.protocol < 4:
        raise _refuse(f"it is written with pickle protocol {facts.walked.protocol}")
    _check_frames(facts.walked.frames)
    result = b"".join(_pieces(data, insertions, facts.walked.frames))
    _verify(data, facts, result, insertions, paths=bool(paths))
    return Downgraded(data=result, strides=len(facts.states.six), paths=len(paths))


def _needs(code: str, target: str) -> bool:
    needed = rules().features[code].torch_min
    return needed is not None and target not in rules().reader([code]).torch


def _paths(data: bytes, facts: Facts) -> list[tuple[int, bytes]]:
    """Find where a module pathlib._local is written, to put `pathlib` in its place."""
    insertions = []
    for name, at in facts.globals.items():
        if name.module != _LOCAL:
            continue
        text = name.name.encode()
        tail = b"\x8c%c%b\x94" % (len(text), text)
        written = at - len(tail)
        if not data.endswith(_LOCAL_TEXT + tail, 0, at) or data[at] != 0x93:
            raise _refuse("its path is not written as Python 3.13 does")
        insertions.append((written, _PLAIN_TEXT))
    return insertions


def _check_frames(frames: Sequence[tuple[int, int]]) -> None:
    behind = 0
    for at, length in frames:
        if at < behind:
            raise _refuse("its frames overlap")
        behind = at + _FRAME + length


def _pieces(
    data: bytes, insertions: Sequence[tuple[int, bytes]], frames: Sequence[tuple[int, int]]
) -> Iterator[bytes | memoryview]:
    """Yield the new file piece by piece: the old one, what is put in, and new frame lengths."""
    view = memoryview(data)
    edits = [(at, 0, inserted) for at, inserted in insertions]
    shift = _Shift(insertions)
    for at, length in frames:
        start = at + _FRAME
        grown = length + shift.before(start + length) - shift.before(start)
        edits.append((at + 1, 8, grown.to_bytes(8, "little")))
    copied = 0
    for at, replaced, inserted in sorted(edits):
        yield view[copied:at]
        yield inserted
        copied = at + replaced
    yield view[copied:]


class _Shift:
    """How many bytes are put in before a place of the old file."""

    def __init__(self, insertions: Sequence[tuple[int, bytes]]) -> None:
        self._places = [at for at, _ in insertions]
        self._sums = [0]
        for _, inserted in insertions:
            self._sums.append(self._sums[-1] + len(inserted))

    def before(self, at: int) -> int:
        return self._sums[bisect_left(self._places, at)]


def _verify(
    data: bytes,
    facts: Facts,
    result: bytes,
    insertions: Sequence[tuple[int, bytes]],
    *,
    paths: bool,
) -> None:
    """See that the new file, walked anew, is the old one but for what was to go.

    Its opcodes are the old ones, one for one, and the POPs: so all that it makes is equal, once
    each POP is known to take the sixth item of a state and nothing else. That is what the states
    tell: where there were six items there are five, and none that were not written just before
    their use.
    """
    try:
        new = read_facts(result)
    except Damaged as damaged:
        raise AssertionError(f"the rewritten metadata cannot be read: {damaged}") from None
    states = facts.states
    expected = {_plain(name) if paths else name for name in facts.globals}
    shift = _Shift(insertions)
    frames = [
        (
            at + shift.before(at),
            length + shift.before(at + _FRAME + length) - shift.before(at + _FRAME),
        )
        for at, length in facts.walked.frames
    ]
    if (
        (new.states.five, len(new.states.six), new.states.others) != (states.five + len(states.six), 0, 0)
        or set(new.globals) != expected
        or new.walked.frames != frames
        or not _same_but(data, result, insertions, facts.walked.frames)
    ):
        raise AssertionError("the rewritten metadata is not the old one without strides")


def _same_but(
    data: bytes,
    result: bytes,
    insertions: Sequence[tuple[int, bytes]],
    frames: Sequence[tuple[int, int]],
) -> bool:
    """Compare the files byte by byte, but for what was put in and the lengths of the frames."""
    old, new = memoryview(data), memoryview(result)
    edits: list[tuple[int, int, bytes | None]] = [(at, 0, put) for at, put in insertions]
    edits += [(at + 1, 8, None) for at, _ in frames]
    old_at = new_at = 0
    for at, skipped, inserted in sorted(edits, key=lambda edit: edit[:2]):
        length = at - old_at
        if old[old_at:at] != new[new_at : new_at + length]:
            return False
        new_at += length
        if inserted is not None and new[new_at : new_at + len(inserted)] != inserted:
            return False
        new_at += skipped if inserted is None else len(inserted)
        old_at = at + skipped
    return old[old_at:] == new[new_at:]


def _plain(name: Global) -> Global:
    return Global("pathlib", name.name) if name.module == _LOCAL else name


def _refuse(why: str) -> NothingSuits:
    return NothingSuits(f"the metadata cannot be downgraded: {why}")
