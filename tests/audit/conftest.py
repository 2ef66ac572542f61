"""One rule asked about one made-up file."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from textwrap import dedent

import pytest

from torchenv.audit import (
    RULES,
    Breakages,
    FileKind,
    Unread,
    audit_content,
    audit_native,
    kind_of,
    read_breakages,
)
from torchenv.catalogue import resources

Found = Callable[[str, str, str | bytes], list[str]]


@pytest.fixture(scope="session")
def breakages() -> Breakages:
    return read_breakages(resources.section("audit"), resources.catalogue())[0]


@pytest.fixture
def found(breakages: Breakages) -> Found:
    """Ask one rule about a file; the answer is `line:column severity` for each finding."""

    def ask(rule: str, path: str, content: str | bytes) -> list[str]:
        (asked,) = (candidate for candidate in RULES if candidate.name == rule)
        kind = kind_of(path)
        assert kind in asked.kinds, f"{rule} does not read {path}"
        data = dedent(content).encode() if isinstance(content, str) else content
        if kind is FileKind.NATIVE:
            result = audit_native(path, BytesIO(data), [breakages], [asked])
        else:
            result = audit_content(path, kind, data, [breakages], [asked])
        assert not isinstance(result, Unread), result.why
        return [f"{item.line}:{item.column} {item.severity}" for item in result]

    return ask
