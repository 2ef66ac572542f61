"""What is missing or damaged in a checkpoint is found, and told apart."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from tests.checkpoints.support import CASES, SAMPLES, MemoryTree, files_of

from torchenv.checkpoints import inspect
from torchenv.checkpoints.formats.coverage import covers
from torchenv.checkpoints.formats.records import Piece
from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.values import Checkpoint
from torchenv.storage import place
from torchenv.storage.tree import LocalTree


def seen(files: dict[str, bytes]) -> Checkpoint:
    checkpoint = inspect(MemoryTree(files))
    assert checkpoint is not None
    return checkpoint


def told(checkpoint: Checkpoint) -> tuple[str, list[str]]:
    return checkpoint.state, [note.message for note in checkpoint.problems]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("dcp-2.14.1", ("complete", [])),
        ("dcp-nometa", ("incomplete", ["no .metadata: the save did not finish"])),
        (
            "dcp-truncmeta",
            ("corrupt", [".metadata: the pickle ends inside a frame"]),
        ),
        (
            "dcp-missingshard",
            ("corrupt", ["__0_0.distcp has 0 bytes, its metadata needs 2838"]),
        ),
    ],
)
def test_the_folder_of_a_killed_save_is_not_complete(case: str, expected: tuple[str, list[str]]) -> None:
    # Case 37: the highest step number was taken for the newest checkpoint.
    checkpoint = inspect(LocalTree(CASES / case))

    assert checkpoint is not None
    assert told(checkpoint) == expected


def test_a_save_that_is_going_on_has_only_its_temporary_metadata() -> None:
    checkpoint = seen({".metadata.tmp": b"\x80\x04"})

    message = "no .metadata, only .metadata.tmp: the save was interrupted, or is still running"
    assert told(checkpoint) == ("incomplete", [message])
    assert checkpoint.reader.reads("2.15.0") is None


def test_a_shard_that_is_not_there_is_named() -> None:
    files = files_of(SAMPLES / "2.14.1" / "sh_fsdp2")
    del files["__1_0.distcp"]

    assert told(seen(files)) == ("incomplete", ["__1_0.distcp is missing"])


def test_files_beside_a_checkpoint_do_not_count() -> None:
    files = files_of(SAMPLES / "2.14.1" / "dcp_plain")
    files |= {".metadata.tmp": b"", "__9_0.distcp": b"", "notes": b"", "__0.metadata": b"x"}

    assert told(seen(files)) == ("complete", [])


def test_the_metadata_of_a_rank_that_is_missing_leaves_a_part_of_the_tensors_out() -> None:
    files = files_of(SAMPLES / "2.14.1" / "sh_nocoll")
    del files["__1.metadata"]
    checkpoint = seen(files)
    assert told(checkpoint) == ("incomplete", ["chunks do not cover s0, s1, uneven"])

    files = files_of(SAMPLES / "2.14.1" / "sh_nocoll")
    assert seen(files).reader.ranks_min == 2
    del files["__0.metadata"]
    messages = ["no metadata of rank 0", "chunks do not cover s0, s1, uneven"]
    assert told(seen(files)) == ("incomplete", messages)


def test_a_truncated_archive_is_corrupt() -> None:
    data = (SAMPLES / "2.15.0" / "ts_plain" / "ck.pt").read_bytes()

    message = "the archive cannot be read: File is not a zip file"
    assert told(seen({"ck.pt": data[:-200]})) == ("corrupt", [message])


def test_a_legacy_file_that_ends_inside_its_storages_is_corrupt() -> None:
    data = (SAMPLES / "2.15.0" / "ts_legacy" / "ck.pt").read_bytes()

    message = "1524 bytes, its tensors need 1534"
    assert told(seen({"ck.pt": data[:-10]})) == ("corrupt", [message])


def test_an_empty_file_is_corrupt() -> None:
    assert told(seen({"ck.pt": b""})) == ("corrupt", ["the file is empty"])


def safetensors(data: bytes) -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


def test_a_sharded_model_whose_second_file_is_cut_short_is_corrupt() -> None:
    index = {"weight_map": {"w": "m-00001-of-00002.safetensors", "v": "m-00002-of-00002.safetensors"}}
    files = {
        "m.safetensors.index.json": json.dumps(index).encode(),
        "m-00001-of-00002.safetensors": safetensors(bytes(16)),
        "m-00002-of-00002.safetensors": safetensors(bytes(7)),
    }
    message = "m-00002-of-00002.safetensors: 77 bytes, its header needs 86"
    assert told(seen(files)) == ("corrupt", [message])

    del files["m-00002-of-00002.safetensors"]
    messages = ["m-00002-of-00002.safetensors is missing", "m 2 of 2 is missing"]
    assert told(seen(files)) == ("incomplete", messages)


def test_a_rank_whose_safetensors_are_missing_leaves_a_gap() -> None:
    files = files_of(SAMPLES / "2.15.0" / "sh_hf")
    del files["shard-00001-model-00001-of-00001.safetensors"]

    messages = ["shard 1 is missing", "chunks do not cover s0, s1, uneven, bf"]
    checkpoint = seen(files)
    assert checkpoint.state == "incomplete"
    assert sorted(note.message for note in checkpoint.problems) == sorted(messages)


@pytest.mark.skipif(os.name == "nt", reason="links as on Unix")
def test_a_shard_behind_a_link_is_read_and_what_the_system_makes_up_is_not(tmp_path: Path) -> None:
    shard = tmp_path / "elsewhere" / "__0_0.distcp"
    shard.parent.mkdir()
    shard.write_bytes(b"")
    inside = tmp_path / "step-1"
    inside.mkdir()
    (inside / "__0_0.distcp").symlink_to(shard)
    (inside / ".metadata").symlink_to("/proc/kmsg")
    (inside / "model.pt").symlink_to("/dev/zero")
    assert dict(LocalTree(inside).sizes()) == {"__0_0.distcp": 0}


@pytest.mark.parametrize(
    ("shape", "pieces", "expected"),
    [
        ((6, 4), [((0, 0), (3, 4)), ((3, 0), (3, 4))], True),
        ((6, 4), [((0, 0), (3, 4)), ((4, 0), (2, 4))], False),
        ((4, 4), [((0, 0), (4, 3)), ((0, 2), (4, 2))], True),  # they overlap
        ((3, 3), [((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1))], False),
        ((2,), [((0,), (1,)), ((0,), (1,))], False),  # as many items as needed, but twice the same
        ((), [((), ())], True),
        ((), [], False),
        ((0, 3), [], True),
        ((5,), [((0,), (5, 1))], False),
    ],
)
def test_chunks_cover_a_tensor_or_do_not(
    shape: tuple[int, ...],
    pieces: list[tuple[tuple[int, ...], tuple[int, ...]]],
    *,
    expected: bool,
) -> None:
    assert covers(shape, [Piece(*each) for each in pieces]) is expected


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 9\n"
LFS = "it is a pointer of Git LFS, and its content was not downloaded: `git lfs pull` brings it"
ANNEX = "it is a pointer of git-annex, and its content was not downloaded: `git annex get` brings it"
PAGE = "it is a web page: the download asked for a login or a consent"


@pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (POINTER, "git-lfs-pointer", LFS),
        (b"/annex/objects/SHA256E-s9--0123.pt\n", "git-annex-pointer", ANNEX),
        (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "web-page", PAGE),
        (b"", "empty", "the file is empty"),
    ],
)
def test_what_only_stands_for_a_checkpoint_is_named_as_what_it_is(
    name: str, data: bytes, code: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    # A scan tells of it, whatever others call by such a name.
    ((*_, found),) = scan([place(tmp_path)], None, lambda _: None)
    prefix = f"{name}: " if name.endswith(".safetensors") else ""
    assert (found.state, found.problems) == ("corrupt", [[code, f"{prefix}{said}"]])


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
def test_a_pointer_in_the_place_of_a_part_is_named(name: str) -> None:
    files = {**files_of(SAMPLES / "2.14.1" / "dcp_plain"), name: POINTER}
    assert told(seen(files)) == ("corrupt", [f"{name}: {LFS}"])
