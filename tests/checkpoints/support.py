"""Checkpoints to test on: measured samples, files made by hand, and large metadata."""

from __future__ import annotations

import io
import pickle
import struct
import sys
import types
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "checkpoints"
SAMPLES = DATA / "samples"
CASES = DATA / "cases"
COMMAND = "touch CANARY_UNPICKLED"


class MemoryTree:
    """Files that are in memory."""

    def __init__(self, files: Mapping[str, bytes], path: str = "runs/a") -> None:
        self._files = files
        self.path = path

    def sizes(self) -> Mapping[str, int]:
        return {name: len(data) for name, data in self._files.items()}

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        data = self._files[name]
        return data[start:] if length is None else data[start : start + length]


def call(module: str, name: str, argument: str) -> bytes:
    """Write a pickle of protocol 2 that would call something."""
    text = argument.encode()
    return (
        f"\x80\x02c{module}\n{name}\n".encode("latin-1")
        + b"X" + struct.pack("<I", len(text)) + text + b"\x85R."
    )  # fmt: skip


def call4(module: str, name: str, argument: str) -> bytes:
    """Write a pickle of protocol 4 that would call something."""
    module_text, name_text, text = (
        b"\x8c" + bytes([len(item)]) + item.encode() for item in (module, name, argument)
    )
    return b"\x80\x04" + module_text + name_text + b"\x93" + text + b"\x85R."


def archive(data: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    """Make a file as torch.save does, around a pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        made.writestr("archive/data.pkl", data)
        made.writestr("archive/byteorder", "little")
        made.writestr("archive/version", "3\n")
    return file.getvalue()


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def metadata(tensors: list[dict[str, Any]], *, strides: bool = True, shared: bool = False) -> bytes:
    """Pickle metadata as torch 2.15 does, with classes that have the names of torch's.

    Each tensor has `name`, `shape` and `pieces` (offsets and sizes), which are stored one after the
    other in `__N_0.distcp` for piece N. With `shared`, all name the list of chunks of the first.
    """
    with _Torch() as torch:
        entries: dict[str, Any] = {}
        storage: dict[Any, Any] = {}
        pieces: list[Any] = []
        for tensor in tensors:
            if not shared or not pieces:
                pieces = [
                    torch.made(torch.Chunk, offsets=torch.Size(start), sizes=torch.Size(sizes))
                    for start, sizes in tensor["pieces"]
                ]
            state = (torch.dtype, torch.layout, False, torch.memory, False)
            properties = torch.Properties()
            shape = tensor["shape"]
            properties.state = (*state, tuple([1] * len(shape))) if strides else state
            entries[tensor["name"]] = torch.made(
                torch.Tensor, properties=properties, size=torch.Size(shape), chunks=pieces
            )
            for n, (start, _) in enumerate(tensor["pieces"]):
                index = torch.made(torch.Index, fqn=tensor["name"], index=n, offset=torch.Size(start))
                place = {
                    "relative_path": f"__{n}_0.distcp",
                    "offset": 7 * len(storage),
                    "length": 7,
                }
                storage[index] = torch.made(torch.Place, **place)
        whole = torch.made(
            torch.Metadata,
            state_dict_metadata=entries,
            planner_data={name: tuple(name.split(".")) for name in entries},
            storage_data=storage,
            storage_meta=torch.made(torch.Meta, checkpoint_id="runs/a", save_id="1", modules=[]),
            version="1.0.0",
        )
        return pickle.dumps(whole, protocol=4)


class _Torch:
    """Names of torch's, for as long as something is pickled."""

    def __enter__(self) -> Any:
        self._before = {name: sys.modules.get(name) for name in self._names}
        self._modules = {name: types.ModuleType(name) for name in self._names}
        sys.modules.update(self._modules)
        place = "torch.distributed.checkpoint.metadata"
        self.Metadata = self._class(place, "Metadata")
        self.Tensor = self._class(place, "TensorStorageMetadata")
        self.Chunk = self._class(place, "ChunkStorageMetadata")
        self.Index = self._class(place, "MetadataIndex")
        self.Meta = self._class(place, "StorageMeta")
        self.Place = self._class("torch.distributed.checkpoint.filesystem", "_StorageInfo")
        self.Properties = self._class(place, "TensorProperties")
        self.Properties.__getstate__ = lambda self: self.state
        self.Size = self._class("torch", "Size", tuple)
        self.Size.__reduce__ = lambda self: (type(self), (tuple(self),))
        self.dtype = self._function("torch", "float32")
        layout = self._function("torch.serialization", "_get_layout")
        self.layout = _Call(layout, ("torch.strided",))
        self.memory = _Call(self._class(place, "_MEM_FORMAT_ENCODING"), (0,))
        return self

    def __exit__(self, *_: object) -> None:
        for name, module in self._before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module

    @staticmethod
    def made(kind: Any, **state: Any) -> Any:
        made = kind()
        made.__dict__.update(state)
        return made

    _names = (
        "torch", "torch.serialization", "torch.distributed", "torch.distributed.checkpoint",
        "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem",
    )  # fmt: skip

    def _class(self, module: str, name: str, base: type = object) -> Any:
        kind = type(name, (base,), {"__module__": module})
        setattr(self._modules[module], name, kind)
        return kind

    def _function(self, module: str, name: str) -> Any:
        def function() -> None: ...

        function.__module__, function.__qualname__ = module, name
        setattr(self._modules[module], name, function)
        return function


class _Call:
    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call
