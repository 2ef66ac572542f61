"""Names that become part of a file's name: held to their grammar in every document that holds one."""

from __future__ import annotations

import re
from pathlib import Path

from torchenv.errors import InputError
from torchenv.system.documents import Table

# It becomes part of pylock.<name>.toml, where PEP 751 allows no dot, and of directories.
_TARGET = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

# 2.15.0-cu132-py3.12 names a directory. No trailing dot, which Windows drops.
_ENVIRONMENT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._+-]{0,78}[A-Za-z0-9])?")


def is_target_name(name: str) -> bool:
    """Return whether a name may name a target, a profile, or a file of either."""
    return _TARGET.fullmatch(name) is not None


def parse_target_name(table: Table, key: str, *default: str) -> str:
    """Return the name of a target or a profile; raises `InputError` for what is no part of a file's name."""
    name = table.get(key, str, *default)
    if not is_target_name(name):
        raise table.wrong(key, f"`{name}` is not a name", "use lower-case letters, digits and hyphens")
    return name


def parse_environment_name(table: Table, key: str) -> str:
    """Return the name of an environment; raises `InputError` for what names no directory."""
    name = table.get(key, str)
    if _ENVIRONMENT.fullmatch(name) is None:
        raise table.wrong(key, f"`{name}` cannot name an environment", NAME_AN_ENVIRONMENT)
    return name


NAME_AN_ENVIRONMENT = "use letters, digits and `.`, `_`, `+`, `-` between them, 64 at most"


def check_environment_name(name: str) -> str:
    """Return a name that a person gives to a new environment; raises `InputError` as for one that is read."""
    # Shorter than what is read: where the name is taken, the number goes to its end.
    if len(name) > 64 or _ENVIRONMENT.fullmatch(name) is None:
        raise InputError(f"`{name}` cannot name an environment", hint=NAME_AN_ENVIRONMENT)
    return name


def refuse_divided(within: Path, hint: str) -> None:
    """Raise `InputError` for a directory that PATH cannot hold."""
    # A drive of Windows ends with one too, and PATH is divided by another character there.
    if ":" in str(within).removeprefix(within.drive):
        raise InputError(
            f"an environment cannot be activated in `{within}`: PATH is divided at each `:`", hint=hint
        )


def refuse_place(within: Path) -> None:
    """Raise `InputError` for a directory in which no environment could be used."""
    place = str(within)
    hint = "choose another place with `--root DIR`, or rename the directory"
    refuse_divided(within, hint)
    if "\n" in place or "\r" in place:
        shown = place.replace("\n", "\\n").replace("\r", "\\r")
        raise InputError(f"no program can start in `{shown}`: a script ends its first line there", hint=hint)
