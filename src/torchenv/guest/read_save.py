"""Reads a save with the environment's own torch, a few tensors at a time, and digests or converts it.

    read_save.py digest|safetensors|torch-save SOURCE [TARGET]

Prints one JSON object: the release of torch, and of each tensor its dtype, shape and SHA-256. No class of a
save's own is imported: what torch's restricted unpickler refuses is refused here.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import os
import sys
import tempfile
import warnings

warnings.simplefilter("ignore")

import torch  # noqa: E402 - nothing of it may warn

BATCH = 256 << 20  # bytes of tensors that are in memory at once, or one that is larger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# As safetensors names them.
SAFETENSORS = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
    "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
}  # fmt: skip


class Distributed:
    """A distributed checkpoint."""

    def __init__(self, path: str) -> None:
        from torch.distributed.checkpoint import FileSystemReader

        self.reader = FileSystemReader(path)
        self.metadata = self.reader.read_metadata()
        entries = self.metadata.state_dict_metadata
        self.forms = {
            name: (entry.properties.dtype, tuple(entry.size))
            for name, entry in entries.items()
            if hasattr(entry, "properties")
        }
        self.objects = [name for name in entries if name not in self.forms]

    def load(self, into: dict[str, Any]) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.load(into, storage_reader=self.reader)

    def load_objects(self) -> dict[str, Any]:
        """Load what is no tensor with torch's restricted unpickler; the reader itself takes any class."""
        from torch.distributed.checkpoint import DefaultLoadPlanner, load

        found: dict[str, Any] = {}

        class Planner(DefaultLoadPlanner):  # type: ignore[misc]
            def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
                found[read_item.dest_index.fqn] = torch.load(value, weights_only=True)

        wanted: dict[str, Any] = dict.fromkeys(self.objects)
        if wanted:
            load(wanted, storage_reader=self.reader, planner=Planner())
        return found

    def path_of(self, name: str) -> tuple[Any, ...]:
        planned = self.metadata.planner_data
        return tuple(planned.get(name, (name,))) if isinstance(planned, dict) else (name,)


class Safetensors:
    """Safetensors, in one file or in as many as they were written in; a tensor may be in pieces."""

    def __init__(self, path: str) -> None:
        files = [path]
        if os.path.isdir(path):
            files = [os.path.join(path, name) for name in sorted(os.listdir(path)) if is_safetensors(name)]
        # Of each tensor its pieces: file, first byte, shape, where each begins in the whole.
        self.pieces: dict[str, list[tuple[str, int, tuple[int, ...], tuple[int, ...]]]] = {}
        self.forms: dict[str, tuple[Any, tuple[int, ...]]] = {}
        self.objects: list[str] = []
        kinds = {kind: name for name, kind in SAFETENSORS.items()}
        for file in files:
            with open(file, "rb") as opened:
                length = int.from_bytes(opened.read(8), "little")
                header = json.loads(opened.read(length))
            about = header.pop("__metadata__", None) or {}
            sharding = json.loads(about.get("DCP_SHARDING_INFO", "{}"))
            for name, entry in header.items():
                if entry["dtype"] not in kinds:
                    raise SystemExit(f"{name} is {entry['dtype']}, which is not known here")
                shape = tuple(entry["shape"])
                begins = tuple(sharding.get(name, {}).get("saved_offsets") or [0] * len(shape))
                piece = (file, 8 + length + entry["data_offsets"][0], shape, begins)
                self.pieces.setdefault(name, []).append(piece)
                ends = [at + size for at, size in zip(begins, shape, strict=True)]
                _, whole = self.forms.get(name, (None, ends))
                dtype = getattr(torch, kinds[entry["dtype"]])
                self.forms[name] = (dtype, tuple(map(max, whole, ends)))

    def load(self, into: dict[str, Any]) -> None:
        for name, tensor in into.items():
            for file, at, shape, begins in self.pieces[name]:
                piece = tensor if shape == tuple(tensor.shape) else torch.empty(shape, dtype=tensor.dtype)
                if piece.nbytes:
                    with open(file, "rb", buffering=0) as opened:
                        opened.seek(at)
                        fill(piece, opened)
                if piece is not tensor:
                    tensor[
                        tuple(slice(start, start + size) for start, size in zip(begins, shape, strict=True))
                    ] = piece

    def load_objects(self) -> dict[str, Any]:
        return {}

    def path_of(self, name: str) -> tuple[Any, ...]:
        return (name,)


def fill(tensor: Any, file: Any) -> None:
    room = memoryview((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())).cast("B")
    while room:
        read = file.readinto(room)
        if not read:
            raise EOFError("the file ends inside a tensor")
        room = room[read:]


def is_safetensors(path: str) -> bool:
    return path.endswith(".safetensors")


class Plain:
    """A file of torch.save."""

    def __init__(self, path: str) -> None:
        options = {"mmap": True} if is_zip(path) else {}
        value = torch.load(path, map_location="cpu", weights_only=True, **options)
        self.tensors: dict[str, Any] = {}
        self.objects: list[str] = []
        for name, leaf in flatten(value, ""):
            if isinstance(leaf, torch.Tensor):
                self.tensors[name] = leaf.detach()
            else:
                self.objects.append(name)
        self.forms = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in self.tensors.items()}


def batches(source: Any) -> Iterator[dict[str, Any]]:
    """Yield tensors with their names, as many at once as may be in memory."""
    if isinstance(source, Plain):
        for name, tensor in source.tensors.items():
            yield {name: tensor}
        return
    batch: dict[str, Any] = {}
    size = 0
    for name, (dtype, shape) in source.forms.items():
        tensor = torch.empty(shape, dtype=dtype)
        if batch and size + tensor.nbytes > BATCH:
            source.load(batch)
            yield batch
            batch, size = {}, 0
        batch[name] = tensor
        size += tensor.nbytes
    if batch:
        source.load(batch)
        yield batch


def is_zip(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def flatten(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    pairs: Any = None
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, (list, tuple)) and value:
        pairs = enumerate(value)
    if pairs is None:
        yield name, value
        return
    for key, inner in pairs:
        yield from flatten(inner, f"{name}.{key}" if name else str(key))


def bytes_of(tensor: Any) -> Any:
    """Return the bytes of a tensor, row by row, without numpy; none are copied of one that lies so."""
    tensor = tensor.contiguous()
    if tensor.nbytes == 0:
        return b"", tensor
    return (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr()), tensor


def name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def digest(source: Any) -> dict[str, Any]:
    found = {}
    for batch in batches(source):
        for name, tensor in batch.items():
            data, _alive = bytes_of(tensor)
            found[name] = [name_of(tensor.dtype), list(tensor.shape), hashlib.sha256(data).hexdigest()]
    return found


def write_safetensors(source: Any, target: str) -> dict[str, Any]:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in source.forms.items():
        kind = SAFETENSORS.get(name_of(dtype))
        if kind is None:
            raise SystemExit(f"safetensors has no {name_of(dtype)}, which {name} is")
        count = dtype.itemsize
        for length in shape:
            count *= length
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    found = {}
    with open(target, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for batch in batches(source):
            for name, tensor in batch.items():
                data, _alive = bytes_of(tensor)
                file.write(data)
                found[name] = [name_of(tensor.dtype), list(tensor.shape), hashlib.sha256(data).hexdigest()]
        file.flush()
        os.fsync(file.fileno())
    return found


def write_plain(source: Any, target: str) -> dict[str, Any]:
    """Write a file of torch.save whose tensors lie in a file until then, which the system may write out."""
    found: dict[str, Any] = {}
    root: dict[Any, Any] = {}
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target), prefix=".torchenv-") as scratch:
        batch: dict[str, Any] = {}
        size = 0

        def load_batch() -> None:
            source.load(batch)
            for name, tensor in batch.items():
                data, _alive = bytes_of(tensor)
                found[name] = [name_of(tensor.dtype), list(tensor.shape), hashlib.sha256(data).hexdigest()]
                put(root, source.path_of(name), tensor)
            batch.clear()

        for number, (name, (dtype, shape)) in enumerate(source.forms.items()):
            count = 1
            for length in shape:
                count *= length
            if count:
                path = os.path.join(scratch, str(number))
                tensor = torch.from_file(path, shared=True, size=count, dtype=dtype).reshape(shape)
            else:
                tensor = torch.empty(shape, dtype=dtype)
            if batch and size + tensor.nbytes > BATCH:
                load_batch()
                size = 0
            batch[name] = tensor
            size += tensor.nbytes
        if batch:
            load_batch()
        for name, value in source.load_objects().items():
            put(root, source.path_of(name), value)
        torch.save(with_lists(root), target)
    return found


def put(root: dict[Any, Any], path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        root = root.setdefault(key, {})
    root[path[-1]] = value


def with_lists(value: Any) -> Any:
    """Return what was flattened with its lists: a dict whose keys are 0, 1, 2, … was one."""
    if not isinstance(value, dict):
        return value
    inner = {key: with_lists(item) for key, item in value.items()}
    if inner and all(type(key) is int for key in inner) and sorted(inner) == list(range(len(inner))):
        return [inner[key] for key in range(len(inner))]
    return inner


def open_save(path: str) -> Any:
    if not os.path.isdir(path):
        return Safetensors(path) if is_safetensors(path) else Plain(path)
    names = os.listdir(path)
    is_distributed = any(name.endswith((".metadata", ".distcp")) for name in names)
    return Distributed(path) if is_distributed or not any(map(is_safetensors, names)) else Safetensors(path)


def main(what: str, path: str, target: str = "") -> dict[str, Any]:
    source = open_save(path)
    if what == "digest":
        found = digest(source)
    elif what == "safetensors":
        found = write_safetensors(source, target)
    else:
        found = write_plain(source, target)
    return {"torch": torch.__version__, "tensors": found, "objects": sorted(source.objects)}


if __name__ == "__main__":
    try:
        answer = main(*sys.argv[1:])
    except SystemExit:
        raise
    except BaseException as error:
        # One line says why; CheckpointException is no Exception, and shows those of its ranks.
        said = " ".join(str(error).split())[:1000]
        sys.exit(f"{type(error).__name__}: {said}")
    print(json.dumps(answer))
