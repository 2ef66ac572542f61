"""The catalogue and the profiles that come with torchenv, and a catalogue of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchenv.errors import InputError
from torchenv.tables import Table, nearest

if TYPE_CHECKING:
    from torchenv.audit import Breakages
    from torchenv.catalogue import Catalogue

# importlib.resources would cost 35 ms of every start.
_PACKAGE = Path(__file__).parent
CATALOGUE = _PACKAGE / "data" / "catalogue.toml"
BREAKAGES = _PACKAGE / "data" / "breakages.toml"

# The wheel carries the profiles inside the package; a source checkout has them at its top.
_CARRIED = _PACKAGE / "profiles"
PROFILES = _CARRIED if _CARRIED.is_dir() else _PACKAGE.parents[1] / "profiles"

# The key by which an entry of a list of tables is known again in the user's file.
_IDENTITY = {
    "release": "version",
    "backend": "tag",
    "companion": "name",
    "generation": "name",
    "kernel-rule": "below",
}


def catalogue(own: Path | None = None) -> Catalogue:
    """Read the packaged catalogue, with a user's file laid over it.

    The file has the same schema. A release is known again by its version, a backend by its tag, a
    companion or a generation by its name, and its keys replace those of the packaged entry; others
    are added. Lists are replaced, but for product names, which are added to.
    Raises `InputError` where the file cannot be read or is not a catalogue.
    """
    # 28 ms, which a command that only needs its digest does not pay.
    from torchenv.catalogue import SCHEMA, parse

    packaged = Table.from_toml(CATALOGUE.read_text(encoding="utf-8"), CATALOGUE.name)
    if own is None:
        return parse(packaged)
    document = Table.from_toml(_read(own), str(own))
    document.schema(SCHEMA, remedy=f"write `schema = {SCHEMA}` at its top")
    merged = laid_over(packaged.raw(), document.raw())
    return parse(Table(merged, f"{own}, over the packaged {CATALOGUE.name}"))


def catalogue_digest(own: Path | None = None) -> str:
    """Give the digest of what `catalogue` would read, `sha256:…`, without understanding it."""
    from hashlib import sha256

    content = CATALOGUE.read_bytes() + (_read(own).encode() if own is not None else b"")
    return f"sha256:{sha256(content).hexdigest()}"


def breakages() -> Breakages:
    """Read what the newest release breaks in people's code, for the audit."""
    from torchenv.audit import Breakages

    return Breakages.read(BREAKAGES.read_text(encoding="utf-8"), BREAKAGES.name)


def profile_names(directory: Path = PROFILES) -> tuple[str, ...]:
    """Give the names of the profiles that come with torchenv."""
    return tuple(sorted(each.stem for each in directory.glob("*.toml")))


def profile(name: str, directory: Path = PROFILES) -> tuple[str, str]:
    """Give the text of a profile that comes with torchenv, and its source for messages.

    Raises `InputError` where there is none of that name.
    """
    known = profile_names(directory)
    if name not in known:
        hint = nearest(name, known) or f"the profiles are {', '.join(known)}; a file's name ends in .toml"
        raise InputError(f"there is no profile {name!r}", hint=hint)
    return (directory / f"{name}.toml").read_text(encoding="utf-8"), f"profiles/{name}.toml"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the catalogue {path} cannot be read: {error}") from None


def laid_over(base: Mapping[str, Any], own: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Lay one catalogue document over another, entry by entry; `place` is where in it one stands."""
    merged = dict(base)
    for key, value in own.items():
        there = base.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            merged[key] = laid_over(there, value, key if not place else f"{place}.{key}")
        elif key in _IDENTITY and _are_tables(value):
            merged[key] = _matched(there or [], value, _IDENTITY[key])
        elif place.startswith("names.") and isinstance(value, list) and isinstance(there, list):
            merged[key] = [*there, *value]
        else:
            merged[key] = value
    return merged


def _matched(base: list[dict[str, Any]], own: list[dict[str, Any]], identity: str) -> list[dict[str, Any]]:
    merged = {each.get(identity): each for each in base}
    for each in own:
        merged[each.get(identity)] = laid_over(merged.get(each.get(identity), {}), each)
    return list(merged.values())


def _are_tables(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)
