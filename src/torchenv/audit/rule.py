"""What a rule of the audit is: its words, what it can hit, and the function that finds it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from torchenv.audit.breakages import Breakages
from torchenv.audit.sources import FileKind, Source

if TYPE_CHECKING:
    from torchenv.audit.findings import Severity, TextPlace


@dataclass(frozen=True, slots=True)
class Hit:
    """Something a rule found, in the words for this place; a severity only where it differs."""

    place: TextPlace
    why: str
    remedy: str
    severity: Severity | None = None


Needle = bytes | re.Pattern[bytes]
Find = Callable[[Source, Breakages], Iterator[Hit]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One change that code can be asked about.

    `needles` is a sound test on bytes: a file without all the words of at least one group cannot
    have a hit, and is not parsed for this rule. It takes names as people write them: in ASCII,
    with nothing around the dots and no escapes.
    """

    name: str
    title: str
    severity: Severity
    kinds: frozenset[FileKind]
    needles: tuple[tuple[Needle, ...], ...]
    find: Find

    def may_hit(self, kind: FileKind, holds: Callable[[Needle], bool]) -> bool:
        """Return whether a file of a kind can have a hit, by what its bytes hold."""
        return kind in self.kinds and any(all(map(holds, group)) for group in self.needles)


def needle_test(content: bytes) -> Callable[[Needle], bool]:
    """Make the question for one file; rules share words, and each is sought once."""

    @cache
    def holds(needle: Needle) -> bool:
        return needle in content if isinstance(needle, bytes) else bool(needle.search(content))

    return holds
