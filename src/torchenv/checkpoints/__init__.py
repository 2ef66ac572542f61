"""Checkpoints: bytes in, facts out. Nothing here imports torch, and nothing runs a pickle."""

from __future__ import annotations

from torchenv.checkpoints.values import Checkpoint
from torchenv.storage.names import SUFFIXES
from torchenv.storage.tree import Tree


def inspect(tree: Tree) -> Checkpoint | None:
    """Describe what a directory or a file holds, and who can read it; None where it is no checkpoint.

    A tree of one file is that file; of a directory with more, only what is a checkpoint as a
    whole is told. What cannot be read, or is damaged, is a checkpoint with problems; nothing is
    raised but `OSError` where the tree itself cannot be listed.
    """
    from torchenv.checkpoints.formats import dcp, safetensors, saved

    sizes = tree.sizes()
    if any(name == dcp.GLOBAL or dcp.RANK_LOCAL.fullmatch(name) for name in sizes):
        return dcp.inspect(tree)
    if any(name.endswith(".distcp") or name == f"{dcp.GLOBAL}.tmp" for name in sizes):
        return dcp.inspect(tree)
    if any(name.endswith((safetensors.SUFFIX, safetensors.INDEX)) for name in sizes):
        return safetensors.inspect(tree)
    if len(sizes) != 1:
        return None
    ((name, size),) = sizes.items()
    if not any(name.endswith(suffix) for suffix in SUFFIXES):
        return None
    try:
        head = tree.read(name, 0, 32)
    except OSError as error:
        return saved.inspect_other(tree, size, error)
    if head.startswith(saved.ZIP):
        return saved.inspect_zip(tree, name, size)
    if head.startswith(saved.LEGACY):
        return saved.inspect_legacy(tree, name, size)
    if head.startswith(b"\x80"):
        return saved.inspect_pickle(tree, name, size)
    return saved.inspect_other(tree, size)
