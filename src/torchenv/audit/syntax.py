"""Whether a file is what its name says, for those that no rule can matter to: parsed, and not looked at."""

from __future__ import annotations

import warnings
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
    except SyntaxError as error:
        return f"not Python: line {error.lineno}: {error.msg}"
    except (RecursionError, MemoryError):
        return "nested too deeply to be followed"
    except ValueError as error:
        return f"{_NAMES[kind]}: {error}"
    return None


def _parse_python(content: bytes) -> None:
    # A table of names costs a third less than a tree, and no byte code is made of it.
    import symtable

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Bytes, as `compile` takes them, so that a declared encoding counts.
        symtable.symtable(content, "<file>", "exec")  # type: ignore[arg-type]


def _parse_toml(content: bytes) -> None:
    import tomllib

    tomllib.loads(content.decode("utf-8-sig"))


def _parse_json(content: bytes) -> None:
    import json

    json.loads(content.decode("utf-8-sig"))


_PARSERS: dict[FileKind, Callable[[bytes], None]] = {
    FileKind.PYTHON: _parse_python,
    FileKind.SETUP_PY: _parse_python,
    FileKind.PYPROJECT: _parse_toml,
    FileKind.LOCK: _parse_toml,
    FileKind.NOTEBOOK: _parse_json,
}
_NAMES = {
    FileKind.PYTHON: "not Python",
    FileKind.SETUP_PY: "not Python",
    FileKind.PYPROJECT: "not valid TOML",
    FileKind.LOCK: "not valid TOML",
    FileKind.NOTEBOOK: "not a Jupyter notebook of format 4",
}
