"""Write a large `.metadata` with the real objects of an installed torch 2.15, to measure on.

Run it with the Python of an environment that has torch 2.15:
    python scripts/bench/make_metadata.py FILE [TENSORS] [CHUNKS] [repeating|unique]

`unique` gives every tensor a shape of its own; models repeat theirs from layer to layer.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any


def main(target: Path, tensors: int, chunks: int, shapes: str) -> None:
    import torch
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        StorageMeta,
        TensorProperties,
        TensorStorageMetadata,
    )

    dtypes = (torch.bfloat16, torch.float32)
    # A writer hands the same string to all of its chunks, so pickle writes each name once.
    shards = [f"__{rank}_0.distcp" for rank in range(chunks)]
    written = [0] * chunks
    entries: dict[str, Any] = {}
    storage: dict[Any, Any] = {}
    for n in range(tensors):
        name = f"model.layers.{n // 100}.block.{n % 100}.weight"
        rows, columns = 1024 * (1 + n % 4), 1024 * (1 + n % 3)
        if shapes == "unique":
            rows, columns = chunks * (n + 1), tensors + n
        piece = rows // chunks
        properties = TensorProperties(dtype=dtypes[n % 2], strides=(columns, 1))
        parts = []
        for rank in range(chunks):
            offset = torch.Size((rank * piece, 0))
            parts.append(ChunkStorageMetadata(offset, torch.Size((piece, columns))))
            length = piece * columns * 2 * (1 + n % 2) + 640
            storage[MetadataIndex(name, offset, rank)] = _StorageInfo(shards[rank], written[rank], length)
            written[rank] += length
        entries[name] = TensorStorageMetadata(properties, torch.Size((rows, columns)), parts)
    metadata = Metadata(
        state_dict_metadata=entries,
        planner_data={name: (name,) for name in entries},
        storage_data=storage,
        storage_meta=StorageMeta(checkpoint_id=Path("runs/a/step-100"), save_id="1"),
        version="1.0.0",
    )
    with target.open("wb") as file:
        pickle.dump(metadata, file)
    print(f"{target}: {target.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    file, tensors, chunks, shapes = [*sys.argv[1:], *("100000", "8", "repeating")[len(sys.argv) - 2 :]]
    main(Path(file), int(tensors), int(chunks), shapes)
