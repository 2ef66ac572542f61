"""A large `.metadata` that is checked record by record is right, or is read as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.checkpoints.formats.test_records import FILES, SMALL, TENSORS
from tests.checkpoints.support import MemoryTree, metadata

from torchenv.checkpoints.formats import dcp
from torchenv.checkpoints.formats.checks import Checks, is_in_a_row, write_shape
from torchenv.checkpoints.formats.coverage import covers
from torchenv.checkpoints.formats.inert import Damaged, Hidden
from torchenv.checkpoints.formats.listing import Listing
from torchenv.checkpoints.formats.pickles import walk
from torchenv.checkpoints.formats.records import PROPERTIES, Piece, States

Checked = tuple[int, list[str], dict[str, int]]


def check(data: bytes, *, part: int = 1 << 30, ahead: int = 0) -> Checked | None:
    """Check metadata; None where they have to be read as a whole."""
    states = States()

    def read(start: int, length: int) -> bytes:
        return data[start : start + length]

    checks = Checks(read, len(data), states, part=part, ahead=ahead)
    try:
        walked = walk(checks.data, watched={PROPERTIES: states.note}, shortcuts=checks)
        checks.finish(walked.value)
    except (Damaged, Hidden):
        return None
    return (checks.tensors, sorted(checks.objects), checks.ends) if checks.is_right else None


def expected(data: bytes) -> Checked | None:
    """Return the same by all that is listed."""
    _, listing = dcp.read_listing(data)
    return summarise(listing) if is_right(listing) else None


def is_right(listing: Listing) -> bool:
    placed = {(place.name, place.offsets) for place in listing.places}
    needed = {
        (name, piece.offsets)
        for name, tensor in listing.tensors.items()
        for piece in tensor.pieces
        if 0 not in piece.sizes
    }
    covered = (covers(tensor.shape, tensor.pieces) for tensor in listing.tensors.values())
    return needed | {(name, None) for name in listing.objects} <= placed and all(covered)


def summarise(listing: Listing) -> Checked:
    ends: dict[str, int] = {}
    for place in listing.places:
        end = place.start + place.length if min(place.start, place.length) >= 0 else 1 << 63
        ends[place.file] = max(end, ends.get(place.file, -1))
    return len(listing.tensors), sorted(listing.objects), ends


@pytest.mark.parametrize("name", FILES)
def test_checks_say_what_the_whole_listing_says(name: str) -> None:
    assert check(FILES[name]) == expected(FILES[name])


def test_a_file_that_is_read_in_parts_is_checked_as_one() -> None:
    data = FILES["strides"]

    assert check(data, part=60_000, ahead=30_000) == expected(data) is not None


def test_a_record_that_is_longer_than_what_is_read_ahead_is_left_to_the_whole() -> None:
    assert check(FILES["strides"], part=2_000, ahead=10) is None


def changed(tensors: list[dict[str, Any]], **change: Any) -> bytes:
    return metadata([*tensors[:-1], {**tensors[-1], **change}])


def test_a_tensor_that_is_not_covered_or_a_chunk_without_a_place_is_seen() -> None:
    tensors = TENSORS[:30]
    gap = changed(tensors, pieces=[((0, 0), (3, 4))], shape=(6, 4))
    whole = changed(tensors, pieces=[((0, 0), (6, 4))], shape=(6, 4))
    at = whole.rindex(b"K\x00K\x00\x86\x94")  # where the last chunk is stored
    moved = whole[:at] + b"K\x01" + whole[at + 2 :]

    assert check(whole) == expected(whole) is not None
    assert (check(gap), expected(gap)) == (None, None)
    assert (check(moved), expected(moved)) == (None, None)


def test_a_large_checkpoint_is_judged_by_its_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp, "_SMALL", 0)
    tensors = [{"name": f"w{n}", "shape": (4,), "pieces": [((0,), (2,)), ((2,), (2,))]} for n in range(50)]
    files = {".metadata": metadata(tensors), "__0_0.distcp": bytes(693), "__1_0.distcp": bytes(700)}

    whole = dcp.inspect(MemoryTree(files))
    short = dcp.inspect(MemoryTree({**files, "__1_0.distcp": bytes(699)}))
    absent = dcp.inspect(MemoryTree({name: data for name, data in files.items() if name != "__0_0.distcp"}))

    assert (whole.state, whole.tensors) == ("complete", 50)
    assert [note.code for note in whole.reader.because] == [
        "dcp-metadata-module", "dcp-storage-meta", "dcp-strides",
    ]  # fmt: skip
    assert [note.code for note in short.problems] == ["shard-short"]
    assert [note.message for note in absent.problems] == ["__0_0.distcp is missing"]


edits = st.lists(
    st.tuples(st.integers(0, 1 << 20), st.sampled_from(b"\x00\x01\x94\x93\x86tbuhjKJM0(.2e)R\x81")),
    min_size=1,
    max_size=2,
)


@settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(edits=edits)
def test_a_file_that_was_changed_is_called_right_only_where_it_is(edits: list[tuple[int, int]]) -> None:
    data = bytearray(SMALL[True])
    for at, byte in edits:
        data[at % len(data)] = byte

    found = check(bytes(data))

    if found is not None:
        assert found == expected(bytes(data))


@pytest.mark.parametrize(
    ("shape", "pieces", "row"),
    [
        ((6, 4), [((0, 0), (3, 4)), ((3, 0), (3, 4))], True),
        ((6, 4), [((0, 0), (6, 2)), ((0, 2), (6, 2))], True),
        ((6, 4), [((0, 0), (3, 4)), ((4, 0), (2, 4))], False),
        ((6, 4), [((0, 0), (3, 4)), ((3, 1), (3, 4))], False),
        ((6, 4), [((0, 0), (6, 4))], True),
        ((6, 4), [((0, 0), (3, 4))], False),
        ((6,), [((0,), (-1,)), ((-1,), (7,))], False),
        ((), [((), ())], True),
        ((2,), [], False),
    ],
)
def test_slices_along_one_axis_are_in_a_row(shape: Any, pieces: Any, *, row: bool) -> None:
    found = [Piece(*piece) for piece in pieces]

    assert is_in_a_row(shape, found) is row
    assert not row or covers(shape, found)


def test_a_shape_is_written_as_a_pickler_writes_it() -> None:
    shapes = [(), (1,), (1, 2, 3), (255, 256, 65535, 65536), ((1 << 31) - 1, 1 << 31), (-1, 1 << 40)]

    written = metadata([{"name": str(n), "shape": shape, "pieces": []} for n, shape in enumerate(shapes)])

    assert all(write_shape(shape) in written for shape in shapes)
