"""Safetensors files, one or in shards, and those that DCP's HuggingFace writer makes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from torchenv.checkpoints.formats.coverage import covers
from torchenv.checkpoints.formats.inert import Damaged
from torchenv.checkpoints.formats.records import Piece, Shape
from torchenv.checkpoints.formats.stand_ins import HEAD, find_stand_in
from torchenv.checkpoints.readability import rules
from torchenv.checkpoints.values import Checkpoint, CheckpointNote, State, escape_name, gaps, some
from torchenv.storage.tree import Tree
from torchenv.system.values import frozen

SUFFIX = ".safetensors"
INDEX = ".safetensors.index.json"
_MOST_DIMENSIONS = 64
_LARGEST = 100_000_000  # bytes of a header: the format's own limit
_ITEM_SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "C64": 8,
}  # fmt: skip
# As torch names what safetensors writes.
DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
    "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "C64": "complex64",
}  # fmt: skip
# shard-00001-model-00001-of-00002.safetensors: the rank, the file of that rank, and how many it has
_NUMBERED = re.compile(r"(?:shard-(\d+)-)?(.*?)-?(\d+)-of-(\d+)\.safetensors")


@frozen
class File:
    """What the header of one safetensors file says."""

    tensors: Mapping[str, Shape]
    dtypes: Mapping[str, str]  # F32, BF16
    spans: Mapping[str, tuple[int, int]]  # from the first byte of the data
    start: int  # that byte
    offsets: Mapping[str, Shape]  # where each begins in the whole tensor, if DCP wrote the file
    by_dcp: bool


def inspect(tree: Tree) -> Checkpoint:
    """Describe what the safetensors files of a directory, or one alone, hold."""
    sizes = tree.sizes()
    names = [name for name in sizes if name.endswith(SUFFIX)]
    problems: list[tuple[State, CheckpointNote]] = []
    files: dict[str, File] = {}
    for name in names:
        try:
            files[name] = read_file(tree, name, sizes[name])
        except Damaged as damaged:
            found = find_stand_in(tree.read(name, 0, HEAD), sizes[name])
            code, said = (found.code, found.message) if found else (damaged.code, damaged.message)
            problems.append(("corrupt", CheckpointNote(code, f"{escape_name(name)}: {said}")))
        except OSError as error:
            note = CheckpointNote("unreadable", f"{escape_name(name)}: {error.strerror or error}")
            problems.append(("corrupt", note))
    for index in (name for name in sizes if name.endswith(INDEX)):
        problems += _check_index(tree, index, sizes, files)
    problems += _check_numbers(names)
    problems += _check_pieces(files)
    by_dcp = any(file.by_dcp for file in files.values())
    sharded = any(name.startswith("shard-") for name in files)
    codes = [("hf-sharded" if sharded else "hf-writer") if by_dcp else "safetensors"]
    if not files:
        codes.append("unread")
    states = [state for state, _ in problems]
    return Checkpoint(
        path=tree.path,
        format="hf" if by_dcp else "safetensors",
        state=max(states, key=("complete", "incomplete", "corrupt").index, default="complete"),
        problems=tuple(note for _, note in problems),
        reader=rules().reader(codes),
        tensors=len({name for file in files.values() for name in file.tensors}),
        bytes=sum(sizes.values()),
    )


def read_file(tree: Tree, name: str, size: int) -> File:
    """Read one header, and see that the data it tells of are there; raises `Damaged`, `OSError`."""
    length = int.from_bytes(tree.read(name, 0, 8).ljust(8, b"\xff"), "little")
    if length > size - 8:
        raise Damaged("header-damaged", "the file ends inside its header")
    if length > _LARGEST:
        raise Damaged("header-damaged", "it is not what safetensors writes")
    header = _json(tree.read(name, 8, length))
    about = header.pop("__metadata__", {})
    if not isinstance(about, dict):
        raise Damaged("header-damaged", "the header's __metadata__ is not a table")
    spans: dict[str, tuple[int, int]] = {}
    tensors, dtypes = {}, {}
    for tensor, entry in header.items():
        shape, start, end = _entry(entry)
        spans[tensor] = (start, end)
        tensors[tensor] = shape
        dtypes[tensor] = str(entry.get("dtype"))
    at = 0
    for start, end in sorted(spans.values()):
        if start != at:
            raise Damaged("header-damaged", "the tensors leave a gap, or overlap")
        at = end
    if 8 + length + at != size:
        code = "shard-short" if 8 + length + at > size else "trailing-bytes"
        raise Damaged(code, f"{size} bytes, its header needs {8 + length + at}")
    by_dcp = "DCP_VERSION" in about
    return File(tensors, dtypes, spans, 8 + length, _read_saved_offsets(about) if by_dcp else {}, by_dcp)


def _json(text: bytes) -> dict[str, Any]:
    # A container takes a hundred bytes of memory; a header has three for each tensor.
    crowded = 12 * (text.count(b"[") + text.count(b"{")) > len(text) + 4096
    if len(text) > _LARGEST or crowded:
        raise Damaged("header-damaged", "it is not what safetensors writes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Damaged("header-damaged", "it is not JSON") from None
    if not isinstance(value, dict):
        raise Damaged("header-damaged", "it is not a table")
    return value


def _entry(entry: Any) -> tuple[Shape, int, int]:
    # {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
    if not isinstance(entry, dict):
        raise Damaged("header-damaged", "a tensor is not a table")
    shape, offsets = _whole(entry.get("shape")), _whole(entry.get("data_offsets"))
    if shape is None or offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise Damaged("header-damaged", "a tensor has no shape, or no place")
    item = _ITEM_SIZES.get(str(entry.get("dtype")))
    if item is not None and math.prod(shape) * item != offsets[1] - offsets[0]:
        raise Damaged("header-damaged", "a tensor's shape does not fit its bytes")
    return shape, offsets[0], offsets[1]


def _whole(value: Any) -> Shape | None:
    """Return a short list of whole numbers that are not negative, or None for anything else."""
    if not isinstance(value, list) or len(value) > _MOST_DIMENSIONS:
        return None
    fits = all(type(item) is int and 0 <= item < 1 << 63 for item in value)
    return tuple(value) if fits else None


def _read_saved_offsets(about: dict[str, Any]) -> dict[str, Shape]:
    # "DCP_SHARDING_INFO": "{\"w\": {\"saved_offsets\": [0, 0]}}"
    told = about.get("DCP_SHARDING_INFO")
    offsets = {}
    for name, entry in _json(told.encode() if isinstance(told, str) else b"{}").items():
        start = _whole(entry.get("saved_offsets")) if isinstance(entry, dict) else None
        if start is None:
            raise Damaged("header-damaged", "its sharding has no offsets")
        offsets[name] = start
    return offsets


def _check_index(
    tree: Tree, index: str, sizes: Mapping[str, int], files: Mapping[str, File]
) -> list[tuple[State, CheckpointNote]]:
    try:
        # One byte more than may be there, so that what is longer is seen to be.
        weights = _json(tree.read(index, 0, _LARGEST + 1)).get("weight_map")
    except (Damaged, OSError) as error:
        return [("corrupt", CheckpointNote("index-damaged", f"{escape_name(index)}: {error}"))]
    if not isinstance(weights, dict):
        return [("corrupt", CheckpointNote("index-damaged", f"{escape_name(index)}: it has no weight_map"))]
    missing = sorted({str(file) for file in weights.values()} - sizes.keys())
    if missing:
        return [("incomplete", CheckpointNote("shard-missing", f"{some(missing)} is missing"))]
    absent = [
        name for name, file in weights.items() if str(file) in files and name not in files[str(file)].tensors
    ]
    if absent:
        return [
            ("corrupt", CheckpointNote("tensor-missing", f"not in the file of the index: {some(absent)}"))
        ]
    return []


def _check_numbers(names: list[str]) -> list[tuple[State, CheckpointNote]]:
    """See that each file of a numbered set is there."""
    sets: dict[tuple[str, str, str], set[int]] = {}
    ranks = set()
    for name in names:
        if found := _NUMBERED.fullmatch(name):
            rank, stem, number, count = found.groups()
            sets.setdefault((rank or "", stem, count), set()).add(int(number))
            if rank:
                ranks.add(int(rank))
    missing = [
        f"{stem or 'file'} {number} of {int(count)}"
        for (_, stem, count), numbers in sets.items()
        for number in gaps(numbers, range(1, int(count) + 1))
    ]
    missing += [f"shard {rank}" for rank in gaps(ranks, range(1, max(ranks, default=0)))]
    return [("incomplete", CheckpointNote("shard-missing", f"{some(missing)} is missing"))] if missing else []


def _check_pieces(files: Mapping[str, File]) -> list[tuple[State, CheckpointNote]]:
    """See that what ranks wrote of a tensor fits together; no file tells its whole size."""
    pieces: dict[str, list[Piece]] = {}
    for file in files.values():
        for name, shape in file.tensors.items():
            start = file.offsets.get(name)
            if start is not None and len(start) == len(shape):
                pieces.setdefault(name, []).append(Piece(start, shape))
    uncovered = []
    for name, parts in pieces.items():
        ends = [tuple(map(sum, zip(*part, strict=True))) for part in parts]
        whole = tuple(map(max, zip(*ends, strict=True)))
        if covers(whole, parts) is False:
            uncovered.append(name)
    if not uncovered:
        return []
    return [("incomplete", CheckpointNote("chunks-missing", f"chunks do not cover {some(uncovered)}"))]
