"""What a new release breaks in a user's code, read without running any of it.

Text and bytes go in, findings come out; nothing here opens a file or starts a process.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, BinaryIO

from torchenv.audit.breakages import Breakages, read_breakages
from torchenv.audit.findings import AuditReport, Finding, Severity, TextPlace, Unread
from torchenv.audit.native import read_native
from torchenv.audit.rule import Hit, Rule, needle_test
from torchenv.audit.rules import RULES
from torchenv.audit.sources import CODE, LARGEST, LARGEST_TEXT, FileKind, Source, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "RULES",
    "AuditReport",
    "Breakages",
    "FileKind",
    "Finding",
    "Rule",
    "Severity",
    "Unread",
    "audit_content",
    "audit_native",
    "kind_of",
    "read_breakages",
]

# train.py:  dist.init_process_group("nccl")  # torchenv: ignore[one-device, nccl-rewritten]
_SUPPRESSION = re.compile(r"(?:#|//|<!--|;)\s*torchenv:\s*ignore\[([\w\-, ]+)\]")


def audit_content(
    path: str,
    kind: FileKind,
    content: bytes,
    breakages: Sequence[Breakages],
    rules: Sequence[Rule] = RULES,
    *,
    is_named: bool = False,
) -> tuple[Finding, ...] | Unread:
    """Read one file that is not compiled and ask each rule that can matter to it.

    `breakages` begins with the release that is audited for; those on the way to it follow. A project file
    that no rule can matter to is only parsed, so that it is known to be what its name says; code is not,
    unless it `is_named`.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        content = content.decode("utf-16", errors="replace").encode()
    holds = needle_test(content)
    asked = [(rule, facts) for facts in breakages for rule in rules if rule.may_hit(kind, holds, facts)]
    if not asked and not (is_named and kind in CODE):
        from torchenv.audit.syntax import explain_damage

        damage = explain_damage(kind, content)
        return () if damage is None else Unread(path, damage)
    largest = LARGEST.get(kind, LARGEST_TEXT)
    if len(content) > largest:
        return Unread(path, f"larger than {largest / 1e6:.1f} MB")
    # Most files end above, and need none of the readers.
    from torchenv.audit.readers import read

    try:
        return _findings(read(path, kind, content, breakages[0]), asked)
    except ValueError as error:
        return Unread(path, str(error))
    except RecursionError:
        return Unread(path, "nested too deeply to be followed")


def audit_native(
    path: str, stream: BinaryIO, breakages: Sequence[Breakages], rules: Sequence[Rule] = RULES
) -> tuple[Finding, ...] | Unread:
    """Read a compiled library, however large: only its dynamic tables are read."""
    try:
        libraries = sorted({lost.library for facts in breakages for lost in facts.unbundled})
        native = read_native(stream, libraries)
    except ValueError as error:
        return Unread(path, str(error))
    asked = [(rule, facts) for facts in breakages for rule in rules if FileKind.NATIVE in rule.kinds]
    return _findings(Source(path=path, kind=FileKind.NATIVE, native=native), asked)


def _findings(source: Source, asked: Sequence[tuple[Rule, Breakages]]) -> tuple[Finding, ...]:
    suppressed = _find_suppressions(source.text)
    # Once for the file: there may be a finding in each line.
    lines = source.text.split("\n") if source.module is not None else []
    found = {
        _finding(source, lines, rule, hit)
        for rule, facts in asked
        for hit in rule.find(source, facts)
        if not any(rule.name in suppressed.get(line, ()) for line in hit.place.lines())
    }
    return tuple(
        sorted(
            found,
            key=lambda found_item: (found_item.line, found_item.column, found_item.rule, found_item.why),
        )
    )


def _find_suppressions(text: str) -> dict[int, frozenset[str]]:
    """Describe which rules are ignored in which lines: the comment's own, or the next if it is alone."""
    found: dict[int, frozenset[str]] = {}
    if "torchenv:" not in text:
        return found
    for number, line in enumerate(text.splitlines(), 1):
        if match := _SUPPRESSION.search(line):
            names = frozenset(name.strip() for name in match[1].split(","))
            alone = not line[: match.start()].strip()
            at = number + 1 if alone else number
            found[at] = found.get(at, frozenset()) | names
    return found


def _finding(source: Source, lines: Sequence[str], rule: Rule, hit: Hit) -> Finding:
    return Finding(
        path=source.path,
        line=_file_line(source, hit.place),
        column=_column(source, lines, hit.place),
        rule=rule.name,
        severity=hit.severity or rule.severity,
        why=hit.why,
        remedy=hit.remedy,
    )


def _file_line(source: Source, place: TextPlace) -> int:
    return source.file_lines[place.line - 1] if source.file_lines else place.line


def _column(source: Source, lines: Sequence[str], place: TextPlace) -> int:
    if source.module is None:
        return place.column
    # Python's trees count bytes, and people count letters.
    before = lines[place.line - 1].encode()[: place.column - 1] if place.line <= len(lines) else b""
    return len(before.decode(errors="ignore")) + 1
