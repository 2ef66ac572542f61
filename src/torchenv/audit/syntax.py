"""Whether a project file is what its name says, where no rule can matter to it: parsed, and not looked at.

Code is not: what its words cannot hit is the same broken or whole, and parsing it would be most of an audit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.sources import LARGEST, LARGEST_TEXT, FileKind

if TYPE_CHECKING:
    from collections.abc import Callable


def explain_damage(kind: FileKind, content: bytes) -> str | None:
    """Return why a file cannot be read as its kind; None where it can, and for kinds without a grammar.

    One that is larger than what rules read is not parsed either.
    """
    parse = _PARSERS.get(kind)
    if parse is None or len(content) > LARGEST.get(kind, LARGEST_TEXT):
        return None
    try:
        parse(content)
    except RecursionError:
        return "nested too deeply to be followed"
    except ValueError as error:
        return f"{_NAMES[kind]}: {error}"
    return None


def _parse_toml(content: bytes) -> None:
    import tomllib

    tomllib.loads(content.decode("utf-8-sig"))


def _parse_json(content: bytes) -> None:
    import json

    json.loads(content.decode("utf-8-sig"))


_PARSERS: dict[FileKind, Callable[[bytes], None]] = {
    FileKind.PYPROJECT: _parse_toml,
    FileKind.LOCK: _parse_toml,
    FileKind.NOTEBOOK: _parse_json,
}
_NAMES = {
    FileKind.PYPROJECT: "not valid TOML",
    FileKind.LOCK: "not valid TOML",
    FileKind.NOTEBOOK: "not a Jupyter notebook of format 4",
}
