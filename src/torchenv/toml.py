"""Values written as TOML in one fixed way, so that the same values are the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime


def inline(value: object) -> str:
    """Write a value as it stands behind a key, tables and lists on one line."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            # A JSON string is a TOML string, but for this one character.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case list() | tuple():
            return f"[{', '.join(map(inline, value))}]"
        case Mapping():
            members = ", ".join(f"{key(name)} = {inline(each)}" for name, each in value.items())
            return f"{{ {members} }}"
        case _:
            return str(value)


def key(name: str) -> str:
    """Write a key, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
