"""Shortcuts through large metadata say what the exact walk says, or leave the file to it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.checkpoints.support import SAMPLES, metadata

from torchenv.checkpoints.formats.inert import Damaged, Hidden
from torchenv.checkpoints.formats.listing import list_metadata
from torchenv.checkpoints.formats.pickles import walk
from torchenv.checkpoints.formats.records import PROPERTIES, Records, States

SHAPES = [
    ((6, 4), [((0, 0), (3, 4)), ((3, 0), (3, 4))]),
    ((1 << 40, 300), [((n << 37, 0), (1 << 37, 300)) for n in range(8)]),
    ((70_000, 7, 2), [((n * 700, 0, 0), (700, 7, 2)) for n in range(100)]),
    ((2, 3, 4, 5), [((0, 0, 0, 0), (2, 3, 4, 5))]),
    ((), [((), ())]),
    ((0,), []),
    ((148, 148), [((0, 0), (148, 148))]),  # 148 is the MEMOIZE opcode
]
TENSORS = [
    {"name": f"blocks.{n}.{'größe' if n % 3 else 'size'}", "shape": shape, "pieces": pieces}
    for n in range(400)
    for shape, pieces in [SHAPES[n % len(SHAPES)]]
]
WITH_STRIDES = metadata(TENSORS)
WITHOUT = metadata(TENSORS, strides=False)
FILES = {
    "strides": WITH_STRIDES,
    "no strides": WITHOUT,
    **{path.parent.name: path.read_bytes() for path in sorted((SAMPLES / "2.15.0").glob("*/.metadata"))},
}

Told = tuple[object, ...]


def exactly(data: bytes) -> Told:
    states = States()
    walked = walk(data, watched={PROPERTIES: states.note})
    return (
        list(walked.globals.items()),
        walked.end,
        walked.frames,
        (states.five, list(states.six), states.others),
        list_metadata(walked.value, most=len(data)),
    )


def by_records(data: bytes, *, keep: bool) -> tuple[Told, Records]:
    states = States()
    records = Records(data, states, keep=keep)
    walked = walk(data, watched={PROPERTIES: states.note}, shortcuts=records)
    told = (
        list(walked.globals.items()),
        walked.end,
        walked.frames,
        (states.five, sorted(states.six), states.others),
        list_metadata(walked.value, most=len(data)) if keep else None,
    )
    return told, records


@pytest.mark.parametrize("name", FILES)
def test_records_tell_what_the_exact_walk_tells(name: str) -> None:
    exact = exactly(FILES[name])

    kept, _ = by_records(FILES[name], keep=True)
    passed_over, _ = by_records(FILES[name], keep=False)

    assert kept == exact
    assert passed_over[:-1] == exact[:-1]


def test_most_of_a_large_file_is_read_by_records() -> None:
    _, records = by_records(WITH_STRIDES, keep=False)

    assert len(WITH_STRIDES) > 10 * (64 << 10)  # so that frames begin inside of records
    assert records.tensors > len(TENSORS) * 0.9


edits = st.lists(
    st.tuples(
        st.integers(0, 1 << 20),
        st.sampled_from(["set", "insert", "delete", "copy"]),
        st.sampled_from(b"\x00\x94\x93\x86tbuhjKJM0(.2\x95e)R\x81"),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=300, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(edits=edits, strides=st.booleans())
def test_a_file_that_was_changed_is_read_as_exactly_or_not_at_all(
    edits: list[tuple[int, str, int]], *, strides: bool
) -> None:
    data = bytearray(SMALL[strides])
    for at, how, byte in edits:
        place = at % len(data)
        if how == "set":
            data[place] = byte
        elif how == "insert":
            data.insert(place, byte)
        elif how == "delete":
            del data[place]
        else:
            data[place:place] = data[place - 40 : place]
    changed = bytes(data)

    outcomes = {keep: _outcome(changed, keep=keep) for keep in (True, False)}

    try:
        exact: Told | str = exactly(changed)
    except Damaged as damaged:
        exact = damaged.code
    assert outcomes[True] in (exact, "left")
    if isinstance(exact, tuple):
        # Without values a file that is not metadata can still be walked.
        assert outcomes[False] in ((*exact[:-1], None), "left")


def _outcome(data: bytes, *, keep: bool) -> Told | str:
    try:
        return by_records(data, keep=keep)[0]
    except Hidden:
        return "left"
    except Damaged as damaged:
        return damaged.code if keep else "left"


SMALL = {answer: metadata(TENSORS[:24], strides=answer) for answer in (True, False)}


def test_the_changed_files_are_read_by_records_where_they_can_be() -> None:
    read = Counter(by_records(SMALL[name], keep=False)[1].tensors for name in SMALL)

    assert all(tensors > 10 for tensors in read)
