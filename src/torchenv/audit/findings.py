"""What an audit gives: findings, each with its place, its reason and its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from torchenv.system.values import frozen


class Severity(IntEnum):
    """How much a finding matters: a note informs, a warning may break, an error does break."""

    NOTE = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, order=True)
class TextPlace:
    """Where in a text something stands; lines and columns count from 1."""

    line: int
    column: int = 1
    last_line: int = 0

    def lines(self) -> range:
        """Return every line that the thing covers."""
        return range(self.line, max(self.line, self.last_line) + 1)


@frozen(kw_only=True)
class Finding:
    """One thing in one file that the release changes for its owner."""

    path: str
    line: int
    column: int
    rule: str
    severity: Severity
    why: str
    remedy: str


@frozen
class Unread:
    """A file that could not be judged, and why: it is never passed over in silence.

    `is_named` is true where the user named the file itself, and not a folder above it.
    """

    path: str
    why: str
    is_named: bool = False


@frozen(kw_only=True)
class AuditReport:
    """All that an audit has to say; `files` is how many were read, without the unread ones."""

    release: str
    files: int
    findings: tuple[Finding, ...]
    unread: tuple[Unread, ...] = ()

    @property
    def is_blind(self) -> bool:
        """Whether a file that was named could not be read, or none at all could."""
        return any(file.is_named for file in self.unread) or (not self.files and bool(self.unread))

    def at_least(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings that matter this much or more: what `--fail-on` asks."""
        return tuple(finding for finding in self.findings if finding.severity >= severity)
