"""What `pytorch_model.bin.index.json` says of the shards of a model that torch.save wrote."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

from torchenv.checkpoints.values import CheckpointNote, escape_name, some
from torchenv.storage.tree import Tree

_LARGEST = 64 << 20  # bytes; an index has about a hundred for each tensor


class MissingShards(NamedTuple):
    """What an index says is missing, and which of its shards are there."""

    note: CheckpointNote
    there: frozenset[str]


def find_missing_shards(tree: Tree, index: str, names: Collection[str]) -> MissingShards | None:
    """Return what an index of shards names that is not among `names`; None where all is there.

    An index that cannot be read is told of each file that could be one of its shards.
    """
    shown = escape_name(index)
    # pytorch_model.bin.index.json -> pytorch_model-00001-of-00002.bin
    stem = index.partition(".")[0]
    candidates = frozenset(name for name in names if name.startswith(stem) and name.endswith(".bin"))
    try:
        text = tree.read(index, 0, _LARGEST + 1)
        weights = json.loads(text)["weight_map"] if len(text) <= _LARGEST else {}
        shards = {name for name in weights.values() if isinstance(name, str)}
    except OSError as error:
        note = CheckpointNote("index-damaged", f"{shown}: {error.strerror or error}")
        return MissingShards(note, candidates)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        note = CheckpointNote("index-damaged", f"{shown}: it is not an index of shards")
        return MissingShards(note, candidates)
    missing = sorted(shards - set(names))
    if not missing:
        return None
    note = CheckpointNote("shard-missing", f"{some(missing)} is missing, though {shown} names it")
    return MissingShards(note, frozenset(shards & set(names)))
