"""Adds to the metadata of a distributed checkpoint what a newer optimizer asks for; changes no file of it.

    repair_save.py SAVE DIRECTORY true|false

Writes into DIRECTORY new metadata, and a file with the value of `decoupled_weight_decay` for every Adam group
that lacks it. Prints the names that were added as JSON.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import warnings

warnings.simplefilter("ignore")

import torch  # noqa: E402 - nothing of it may warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEY = "decoupled_weight_decay"
FILE = "__repair_0.distcp"


def main(save: str, directory: str, value: str) -> list[str]:
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex

    metadata: Any = FileSystemReader(save).read_metadata()
    entries = metadata.state_dict_metadata
    groups = [name.rpartition(".")[0] for name in entries if name.endswith(".betas")]
    added = [f"{group}.{KEY}" for group in groups if f"{group}.{KEY}" not in entries]
    with open(os.path.join(directory, FILE), "wb") as file:
        for name in added:
            data = io.BytesIO()
            torch.save(value == "true", data)
            start = file.tell()
            file.write(data.getbuffer())
            entries[name] = BytesStorageMetadata()
            metadata.storage_data[MetadataIndex(name)] = _StorageInfo(FILE, start, file.tell() - start)
            paths = metadata.planner_data
            sibling = f"{name.rpartition('.')[0]}.betas"
            if isinstance(paths, dict) and sibling in paths:
                paths[name] = (*paths[sibling][:-1], KEY)
    with open(os.path.join(directory, ".metadata"), "wb") as file:
        pickle.dump(metadata, file)
    return added


if __name__ == "__main__":
    try:
        answer = main(*sys.argv[1:])
    except BaseException as error:
        said = " ".join(str(error).split())[:1000]
        sys.exit(f"{type(error).__name__}: {said}")
    print(json.dumps(answer))
