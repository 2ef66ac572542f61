"""A copy of 2.15's metadata without strides is equal but for them, or is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.checkpoints.support import CASES, SAMPLES, MemoryTree, call4, files_of, metadata

from torchenv.checkpoints import inspect
from torchenv.checkpoints.downgrade import downgrade
from torchenv.checkpoints.formats import dcp
from torchenv.checkpoints.formats.inert import InertObject, Map
from torchenv.checkpoints.formats.pickles import walk
from torchenv.checkpoints.formats.records import PROPERTIES
from torchenv.checkpoints.readability import reader_after
from torchenv.errors import NothingSuits
from torchenv.storage.tree import LocalTree

WRITTEN = sorted((SAMPLES / "2.15.0").glob("*/*metadata"))
PY313 = sorted((SAMPLES / "2.15.0-py313").glob("*/*metadata"))


def plain(value: Any) -> Any:
    """Return what a pickle would make as values that can be compared, without any strides."""
    if type(value) is InertObject:
        state = plain(value.state)
        if value.maker == PROPERTIES:
            state = state[0], state[1][:5]
        maker = str(value.maker).replace("pathlib._local", "pathlib")
        return "made", maker, plain(value.arguments), state
    if type(value) in (tuple, list, Map):
        return type(value).__name__, [plain(inner) for inner in value]
    return value


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_2_15_wrote_is_equal_but_for_its_strides(path: Any) -> None:
    data = path.read_bytes()
    before = dcp.read_facts(data)

    result = downgrade(data, "2.14")

    assert result.strides == len(before.states.six) > 0
    assert plain(walk(result.data).value) == plain(walk(data).value)
    after = dcp.read_facts(result.data)
    assert (after.states.five, len(after.states.six)) == (len(before.states.six), 0)
    assert len(result.data) == len(data) + result.strides
    assert downgrade(result.data, "2.14").data is result.data


@pytest.mark.parametrize("kind", ["dcp_plain", "sh_fsdp2", "sh_nocoll", "dcp_zstd"])
def test_a_downgraded_copy_has_the_verdict_of_one_that_2_14_wrote(kind: str) -> None:
    files = files_of(SAMPLES / "2.15.0" / kind)
    for name in files:
        if name.endswith("metadata"):
            files[name] = downgrade(files[name], "2.14").data

    copy = inspect(MemoryTree(files))
    model = inspect(LocalTree(SAMPLES / "2.14.1" / kind))

    assert copy is not None
    assert model is not None
    assert (copy.state, copy.reader, copy.tensors) == (model.state, model.reader, model.tensors)


@pytest.mark.parametrize("path", PY313, ids=lambda path: path.parent.name)
def test_the_path_of_python_3_13_is_written_for_every_python_when_asked(path: Any) -> None:
    data = path.read_bytes()

    kept = downgrade(data, "2.14")
    rewritten = downgrade(data, "2.14", portable_path=True)

    assert (kept.paths, rewritten.paths) == (0, 1)
    assert "pathlib._local" in {name.module for name in dcp.read_facts(kept.data).globals}
    assert "pathlib._local" not in {name.module for name in dcp.read_facts(rewritten.data).globals}
    assert plain(walk(rewritten.data).value) == plain(walk(data).value)
    assert downgrade(rewritten.data, "2.14", portable_path=True).data is rewritten.data


def test_the_case_of_a_checkpoint_that_2_14_cannot_read() -> None:
    # Case 33: step-100 was written by 2.14.1, step-200 by 2.15.0.
    old, new = (inspect(LocalTree(CASES / f"dcp-{item}")) for item in ("2.14.1", "2.15.0"))

    assert old is not None
    assert new is not None
    assert [old.reader.reads(torch) for torch in ("2.4.1", "2.14.1", "2.15.0")] == [True] * 3
    assert [new.reader.reads(item) for item in ("2.4.1", "2.14.1", "2.15.0")] == [
        False,
        False,
        True,
    ]
    after = reader_after(new.reader)
    assert [after.reads(torch) for torch in ("2.4.1", "2.14.1", "2.15.0")] == [True] * 3


def test_frames_that_begin_inside_of_records_keep_their_lengths_right() -> None:
    tensors = [
        {"name": f"layer.{n}.weight", "shape": (n, 3), "pieces": [((0, 0), (n, 3))]} for n in range(1, 30_000)
    ]
    data = metadata(tensors)
    assert len(data) > 4 << 20  # so that it is read by records

    result = downgrade(data, "2.14")

    frames = dcp.read_facts(result.data).walked.frames
    assert len(frames) > 50
    assert all(at + 9 + length == after for (at, length), (after, _) in pairwise(frames))
    assert frames[-1][0] + 9 + frames[-1][1] == len(result.data)
    assert dcp.read_listing(result.data)[1] == dcp.read_listing(data)[1]


def test_another_feature_that_needs_a_newer_torch_makes_nothing() -> None:
    data = (SAMPLES / "2.15.0" / "dcp_fp4x2" / ".metadata").read_bytes()

    with pytest.raises(NothingSuits) as raised:
        downgrade(data, "2.8")

    assert raised.value.message == (
        "the metadata cannot be downgraded: torch 2.8 would not read it without strides either: "
        "it holds float4_e2m1fn_x2, which torch 2.10 is the first to read"
    )


def test_metadata_with_foreign_names_is_not_rewritten() -> None:
    with pytest.raises(NothingSuits) as raised:
        downgrade(call4("os", "system", "true"), "2.14")

    assert raised.value.message == (
        "the metadata cannot be downgraded: it would import names that no release writes: os.system"
    )


STATE = b"\x80\x04\x8c\x25torch.distributed.checkpoint.metadata\x8c\x10TensorProperties\x93\x94"


@pytest.mark.parametrize(
    ("pickle", "why"),
    [
        # A state of seven items.
        (STATE + b")\x81(NNNNNNNtb.", "some of its tensors have properties that no release writes"),
        # One that was made before, and comes out of the memo.
        (
            STATE + b"(NNNNNNt\x940h\x00)\x81h\x01b.",
            "some of its tensors have properties that no release writes",
        ),
        # One that is used again somewhere else.
        (
            STATE + b")\x81(NNNNNNt\x94bh\x01\x86.",
            "properties of its tensors are used in other places, too",
        ),
        # A frame inside of a frame.
        (
            STATE.replace(b"\x80\x04", b"\x80\x04\x95\x50" + bytes(7))
            + b"\x95\x05" + bytes(7) + b")\x81(NNNNNNt\x94b" + b"0N" * 10 + b".",
            "its frames overlap",
        ),
    ],
)  # fmt: skip
def test_states_that_no_release_writes_are_not_rewritten(pickle: bytes, why: str) -> None:
    with pytest.raises(NothingSuits) as raised:
        downgrade(pickle, "2.14")

    assert raised.value.message == f"the metadata cannot be downgraded: {why}"
