"""How trainers lay out their saves: the rules of `checkpoint-layouts.toml`, and what is missing by them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

from torchenv.catalogue.resources import read_packaged
from torchenv.checkpoints.values import CheckpointNote, gaps, some
from torchenv.storage.names import LAYOUTS
from torchenv.system.documents import Table
from torchenv.system.values import frozen

_RANK = "{rank}"


class Gap(NamedTuple):
    """What a save lacks by a layout; of saves of other names it says nothing."""

    note: CheckpointNote
    saves: re.Pattern[str] | None


@frozen(kw_only=True)
class PartRule:
    """When names of all patterns of `when` are there, those of `needs` and `ranks` must be."""

    when: tuple[re.Pattern[str], ...]
    needs: tuple[tuple[str, re.Pattern[str]], ...]
    ranks: tuple[tuple[str, re.Pattern[str]], ...]

    @classmethod
    def parse(cls, table: Table) -> PartRule:
        table.only({"when", "needs", "ranks"})
        return cls(
            when=tuple(map(_compile, table.strings("when"))),
            needs=tuple((text, _compile(text)) for text in table.strings("needs")),
            ranks=tuple((text, _compile(text)) for text in table.strings("ranks")),
        )

    def find_gaps(self, names: Collection[str]) -> Iterator[CheckpointNote]:
        """Yield what is missing among the names of a save's files."""
        if not all(any(map(pattern.fullmatch, names)) for pattern in self.when):
            return
        for text, pattern in self.needs:
            if not any(map(pattern.fullmatch, names)):
                yield CheckpointNote("part-missing", f"no {text}: the save did not finish")
        for text, pattern in self.ranks:
            ranks = {int(found["rank"]) for name in names if (found := pattern.fullmatch(name))}
            if missing := gaps(ranks, range(max(ranks, default=-1) + 1)):
                said = text.replace(_RANK, some(missing))
                yield CheckpointNote("rank-missing", f"{said} is not there")


@frozen(kw_only=True)
class SaveLayout:
    """How one trainer lays out its saves."""

    name: str
    source: str
    saves: re.Pattern[str] | None
    inner: tuple[str, ...]
    shared: tuple[str, ...]
    newest: tuple[str, ...]
    pointers: tuple[str, ...]
    parts: tuple[PartRule, ...]

    @classmethod
    def parse(cls, table: Table) -> SaveLayout:
        table.only({"name", "source", "saves", "inner", "shared", "newest", "pointers", "part"})
        saves = table.strings("saves")
        return cls(
            name=table.get("name", str),
            source=table.get("source", str),
            saves=_compile(*saves) if saves else None,
            inner=table.strings("inner"),
            shared=table.strings("shared"),
            newest=table.strings("newest"),
            pointers=table.strings("pointers"),
            parts=tuple(map(PartRule.parse, table.tables("part"))),
        )


@dataclass(frozen=True, kw_only=True)
class Layouts:
    """All layouts that are known, and the names by which a save says that it is not finished."""

    layouts: tuple[SaveLayout, ...]
    markers: tuple[str, ...]  # what follows the name of a save in the name of a file beside it
    unfinished: re.Pattern[str]

    @cached_property
    def pointers(self) -> tuple[str, ...]:
        """The files that name the newest save of a run."""
        return tuple(name for layout in self.layouts for name in layout.pointers)

    @cached_property
    def shared_names(self) -> frozenset[str]:
        """The folders beside the saves of a run that belong to its newest."""
        return frozenset(name for layout in self.layouts for name in layout.shared)

    @cached_property
    def newest(self) -> re.Pattern[str]:
        """The names without a step under which a trainer writes its newest save again and again."""
        return _compile(*(text for layout in self.layouts for text in layout.newest))

    @cached_property
    def _inner(self) -> re.Pattern[str]:
        return _compile(*(text for layout in self.layouts for text in layout.inner))

    def is_inner(self, name: str) -> bool:
        """Whether what has this name is part of a save, and never one by itself."""
        return bool(self._inner.fullmatch(name))

    def find_gaps(self, names: Collection[str]) -> tuple[Gap, ...]:
        """Return what a save with these files lacks; names have `/` between their parts."""
        return tuple(
            Gap(note, layout.saves)
            for layout in self.layouts
            for rule in layout.parts
            for note in rule.find_gaps(names)
        )


@cache
def layouts() -> Layouts:
    """Return the layouts that torchenv knows."""
    table = read_packaged(LAYOUTS)
    table.only({"schema", "unfinished", "layout"})
    unfinished = table.table("unfinished")
    unfinished.only({"markers", "names", "sources"})
    return Layouts(
        layouts=tuple(map(SaveLayout.parse, table.tables("layout"))),
        markers=tuple(text.removeprefix("{save}") for text in unfinished.strings("markers")),
        unfinished=_compile(*unfinished.strings("names")),
    )


def _compile(*patterns: str) -> re.Pattern[str]:
    parts = [
        re.escape(text)
        .replace(r"\*", "[^/]*")
        .replace(r"\{rank\}", r"(?P<rank>\d{1,7})")
        .replace(r"\{step\}", r"\d+")
        for text in patterns
    ]
    return re.compile("|".join(f"(?:{part})" for part in parts))
