"""The profiles that come with torchenv."""

from __future__ import annotations

import os
from pathlib import Path

from torchenv.errors import InputError
from torchenv.system.documents import nearest

# The wheel carries the profiles inside the package; a source checkout has them at its top.
_PACKAGE = Path(__file__).parents[1]
_CARRIED = _PACKAGE / "profiles"
PROFILES = _CARRIED if os.path.isdir(_CARRIED) else _PACKAGE.parents[1] / "profiles"


def list_profile_names(directory: Path = PROFILES) -> tuple[str, ...]:
    """Return the names of the profiles that come with torchenv."""
    return tuple(sorted(path.stem for path in directory.glob("*.toml")))


def read_packaged_profile(name: str, directory: Path = PROFILES) -> tuple[str, str]:
    """Return the text of a profile that comes with torchenv, and its source for messages.

    Raises `InputError` where there is none of that name.
    """
    known = list_profile_names(directory)
    if name not in known:
        hint = nearest(name, known) or f"use one of {', '.join(known)}, or a file whose name ends in .toml"
        raise InputError(f"profile `{name}` not found", hint=hint)
    return (directory / f"{name}.toml").read_text(encoding="utf-8"), f"profiles/{name}.toml"
