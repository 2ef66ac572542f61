"""Which files a checkpoint may consist of, by their names alone."""

from __future__ import annotations

from functools import cache

from torchenv.catalogue.resources import read_packaged
from torchenv.system.documents import Table

LAYOUTS = "checkpoint-layouts.toml"
# Files that may each be a checkpoint as a whole.
SUFFIXES = frozenset({".pt", ".pth", ".ckpt", ".bin", ".pt2", ".safetensors", ".tar", ".pkl"})

# Nothing in these was saved by a training; the last is what torchenv itself has not finished writing.
_PASSED_OVER = frozenset({".git", ".torchenv", ".venv", "__pycache__", "node_modules", "site-packages"})
_UNFINISHED = ".torchenv-new"
_INDEXES = (".safetensors.index.json", ".bin.index.json")
_BEING_WRITTEN = tuple(f"{suffix}{end}" for suffix in SUFFIXES for end in (".tmp", ".incomplete"))
_PARTS = (".distcp", ".metadata", ".metadata.tmp", *_INDEXES, *SUFFIXES)


def is_part(name: str) -> bool:
    """Whether a file of this name may be a checkpoint or a part of one, or says something of one."""
    return name.endswith(_PARTS) or name in _list_marks() or name.endswith(_list_ends())


def is_being_written(name: str) -> bool:
    """Whether a file is by its name a checkpoint that is not whole yet: model.pt.tmp."""
    return name.endswith(_BEING_WRITTEN)


@cache
def _read_layouts() -> Table:
    return read_packaged(LAYOUTS)


@cache
def _list_marks() -> frozenset[str]:
    """Return the names by which trainers tell something of their saves: `latest`, trainer_state.json."""
    layouts = _read_layouts().tables("layout")
    needed = (name for layout in layouts for part in layout.tables("part") for name in part.strings("needs"))
    pointers = (name for layout in layouts for name in layout.strings("pointers"))
    return frozenset(name.rpartition("/")[2] for name in (*needed, *pointers))


@cache
def _list_ends() -> tuple[str, ...]:
    markers = _read_layouts().table("unfinished").strings("markers")
    return (*(text.removeprefix("{save}") for text in markers), *_BEING_WRITTEN)


def is_skipped(name: str) -> bool:
    """Whether a directory of this name is not looked into."""
    return name in _PASSED_OVER or name.endswith(_UNFINISHED)
