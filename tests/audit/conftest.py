"""One rule asked about one made-up file."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from textwrap import dedent

import pytest

import torchenv
from torchenv.audit import RULES, Breakages, FileKind, Unread, audit_content, audit_native, kind_of

Found = Callable[[str, str, str | bytes], list[str]]


@pytest.fixture(scope="session")
def breakages() -> Breakages:
    (package,) = torchenv.__path__
    data = Path(package) / "catalogue" / "data" / "breakages.toml"
    return Breakages.read(data.read_text(encoding="utf-8"), "breakages.toml", "2.15.0")


@pytest.fixture
def found(breakages: Breakages) -> Found:
    """Ask one rule about a file; the answer is `line:column severity` for each finding."""

    def ask(rule: str, path: str, content: str | bytes) -> list[str]:
        (asked,) = (each for each in RULES if each.name == rule)
        kind = kind_of(path)
        assert kind in asked.kinds, f"{rule} does not read {path}"
        data = dedent(content).encode() if isinstance(content, str) else content
        if kind is FileKind.NATIVE:
            result = audit_native(path, BytesIO(data), breakages, [asked])
        else:
            result = audit_content(path, kind, data, breakages, [asked])
        assert not isinstance(result, Unread), result.why
        return [f"{each.line}:{each.column} {each.severity}" for each in result]

    return ask
