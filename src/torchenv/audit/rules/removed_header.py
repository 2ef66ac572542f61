"""Headers that the release no longer ships."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchenv.audit.commands import Lines
from torchenv.audit.findings import Severity
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import FileKind, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages

_INCLUDE = re.compile(r"^[ \t]*#\s*include\s*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    lines = Lines(source.build)
    for match in _INCLUDE.finditer(source.build):
        if match[1] in breakages.removed_headers:
            yield Hit(
                lines.place(match.start(1)),
                f"torch {breakages.version} no longer ships {match[1]}",
                "leave the include out for this release, or keep a copy of what is used of it",
            )


RULE = Rule(
    name="removed-header",
    title="A header that the release removed",
    severity=Severity.ERROR,
    kinds=frozenset({FileKind.CODE}),
    needles=lambda breakages: tuple(
        (header.rpartition("/")[2].encode(),) for header in breakages.removed_headers
    ),
    find=find,
)
