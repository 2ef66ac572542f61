"""Which files a checkpoint may consist of, by their names alone."""

from __future__ import annotations

# Files that may each be a checkpoint as a whole.
SUFFIXES = frozenset({".pt", ".pth", ".ckpt", ".bin", ".pt2", ".safetensors", ".tar", ".pkl"})

# Nothing in these was saved by a training; the last is what torchenv itself has not finished writing.
_PASSED_OVER = frozenset({".git", ".torchenv", ".venv", "__pycache__", "node_modules", "site-packages"})
_UNFINISHED = ".torchenv-new"
_PARTS = (".distcp", ".metadata", ".metadata.tmp", ".safetensors.index.json", *SUFFIXES)


def is_part(name: str) -> bool:
    """Whether a file of this name may be a checkpoint or a part of one."""
    return name.endswith(_PARTS)


def is_skipped(name: str) -> bool:
    """Whether a directory of this name is not looked into."""
    return name in _PASSED_OVER or name.endswith(_UNFINISHED)
