"""What a rule of the audit is: its words, what it can hit, and the function that finds it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from torchenv.audit.breakages import Breakages
from torchenv.audit.sources import FileKind, Source
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from torchenv.audit.findings import Severity, TextPlace


@frozen
class Hit:
    """Something a rule found, in the words for this place; a severity only where it differs."""

    place: TextPlace
    why: str
    remedy: str
    severity: Severity | None = None


Needle = bytes | re.Pattern[bytes]
Needles = tuple[tuple[Needle, ...], ...]
Find = Callable[[Source, Breakages], Iterator[Hit]]


@frozen(kw_only=True)
class Rule:
    """One change that code can be asked about.

    `needles` is a sound test on bytes: a file without all the words of at least one group cannot
    have a hit, and is not parsed for this rule. It takes names as people write them: in ASCII,
    with nothing around the dots and no escapes. Where the words are facts, it makes them of these;
    of a release without such facts it makes none, and the rule is not asked.
    """

    name: str
    title: str
    severity: Severity
    kinds: frozenset[FileKind]
    needles: Needles | Callable[[Breakages], Needles]
    find: Find
    # Whether it asks what a release is published for; else what a release changes in code.
    is_of_release: bool = False
    # There is one of each, and it is asked of every file: to hash all its fields would be felt.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def may_hit(self, kind: FileKind, holds: Callable[[Needle], bool], breakages: Breakages) -> bool:
        """Return whether a file of a kind can have a hit, by what its bytes hold."""
        return kind in self.kinds and any(all(map(holds, group)) for group in self.needles_for(breakages))

    def needles_for(self, breakages: Breakages) -> Needles:
        """Return the words to look for; none where the release has nothing that this rule could find."""
        if breakages.on_the_way and self.is_of_release:
            return ()
        return _needles(self, breakages)


@cache
def _needles(rule: Rule, breakages: Breakages) -> Needles:
    return rule.needles if isinstance(rule.needles, tuple) else rule.needles(breakages)


def only_where(
    has_facts: Callable[[Breakages], object], *needles: tuple[Needle, ...]
) -> Callable[[Breakages], Needles]:
    """Make the needles of a rule that has nothing to ask of a release without certain facts."""
    return lambda breakages: needles if has_facts(breakages) else ()


def needle_test(content: bytes) -> Callable[[Needle], bool]:
    """Make the question for one file; rules share words, and each is sought once."""

    @cache
    def holds(needle: Needle) -> bool:
        return needle in content if isinstance(needle, bytes) else bool(needle.search(content))

    return holds
