"""The catalogue that comes with torchenv, and a user's own laid over it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchenv.errors import InputError
from torchenv.system.addresses import host_of, refuse_login
from torchenv.system.documents import Table

if TYPE_CHECKING:
    from torchenv.catalogue.releases import Catalogue

# importlib.resources would cost 35 ms of every start.
DATA = Path(__file__).parent / "data"
CATALOGUE = DATA / "catalogue.toml"
# What else is known of releases; a user's catalogue lays a table of this name over each.
SECTIONS = {
    "audit": DATA / "breakages.toml",
    "checkpoints": DATA / "checkpoint-rules.toml",
    "checkpoint-names": DATA / "checkpoint-names.toml",
}

# The key by which an entry of a list of tables is known again in the user's file.
_IDENTITY = {
    "release": "version",
    "backend": "tag",
    "companion": "name",
    "generation": "name",
    "kernel-rule": "below",
    "avoid-python": "name",
    "trainer": "call",
    "unbundled": "library",
}


def catalogue(own: Path | None = None, *, is_named: bool = True) -> Catalogue:
    """Read the packaged catalogue, with a user's file laid over it.

    The file has the same schema. A release is known again by its version, a backend by its tag, a
    companion or a generation by its name, and its keys replace those of the packaged entry; others
    are added. Lists are replaced, but for product names, which are added to.
    Unless the user named the file (`is_named`), it may have come with a repository: then it moves no index.
    Raises `InputError` where the file cannot be read, is not a catalogue, or moves an index unasked.
    """
    # 28 ms, which a command that only needs its digest does not pay.
    from torchenv.catalogue.document import SCHEMA, parse

    packaged = Table.from_toml(CATALOGUE.read_text(encoding="utf-8"), CATALOGUE.name)
    if own is None:
        return parse(packaged)
    document = Table.from_toml(_read(own), str(own))
    document.schema(SCHEMA, remedy=f"write `schema = {SCHEMA}` at its top")
    written = {key: value for key, value in document.raw().items() if key not in SECTIONS}
    merged = lay_over(packaged.raw(), written)
    found = parse(Table(merged, f"{own}, over the packaged {CATALOGUE.name}"))
    refuse_login(found.index_root, f"{own}: index.root")
    if not is_named and found.index_root != (packaged_root := packaged.table("index").get("root", str)):
        import shlex

        raise InputError(
            f"{own}: index.root moves PyTorch's index from {host_of(packaged_root)} to `{found.index_root}`,"
            " and this catalogue may have come with the project",
            hint=f"remove `[index]` from it, or trust it by name: `--catalogue {shlex.quote(str(own))}`",
        )
    return found


def document(own: Path | None = None) -> Mapping[str, Any]:
    """Return the packaged catalogue as it is written, with a user's file laid over it."""
    packaged = Table.from_toml(CATALOGUE.read_text(encoding="utf-8"), CATALOGUE.name).raw()
    if own is None:
        return packaged
    written = Table.from_toml(_read(own), str(own)).raw()
    return lay_over(packaged, {key: value for key, value in written.items() if key not in SECTIONS})


def section(name: str, own: Path | None = None) -> Table:
    """Return what is known of releases beside the catalogue: `audit` or `checkpoints`, as one document.

    A user's catalogue file may hold a table of this name; it is laid over the packaged file, entry by
    entry, as the rest of the catalogue is. Raises `InputError` where a file cannot be read.
    """
    packaged = SECTIONS[name]
    document = Table.from_toml(packaged.read_text(encoding="utf-8"), packaged.name)
    if own is None:
        return document
    written = Table.from_toml(_read(own), str(own)).table(name)
    source = f"{own} [{name}], over the packaged {packaged.name}"
    return Table(lay_over(document.raw(), written.raw()), source)


def read_packaged(name: str) -> Table:
    """Return a document that comes with torchenv, by the name of its file."""
    return Table.from_toml((DATA / name).read_text(encoding="utf-8"), name)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the catalogue {path} cannot be read: {error}") from None


def lay_over(base: Mapping[str, Any], own: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Lay one catalogue document over another, entry by entry; `place` is where in it one stands."""
    merged = dict(base)
    for key, value in own.items():
        there = base.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            merged[key] = lay_over(there, value, key if not place else f"{place}.{key}")
        elif key in _IDENTITY and _are_tables(value):
            merged[key] = _match_entries(there or [], value, _IDENTITY[key])
        elif place.startswith("names.") and isinstance(value, list) and isinstance(there, list):
            merged[key] = [*there, *value]
        else:
            merged[key] = value
    return merged


def _match_entries(
    base: list[dict[str, Any]], own: list[dict[str, Any]], identity: str
) -> list[dict[str, Any]]:
    merged = {item.get(identity): item for item in base}
    for item in own:
        merged[item.get(identity)] = lay_over(merged.get(item.get(identity), {}), item)
    return list(merged.values())


def _are_tables(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)
