"""Write into the user's own catalogue what the indexes say otherwise than the packaged one."""

from __future__ import annotations

import os
import secrets
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchenv.actions.catalogue import CatalogueDifference, by_number, check
from torchenv.actions.new_patches import describe_new_patches
from torchenv.catalogue.document import SCHEMA, parse
from torchenv.catalogue.releases import Catalogue, Release
from torchenv.catalogue.resources import lay_over
from torchenv.errors import InputError
from torchenv.index.pages import Fetch
from torchenv.system.addresses import TorchIndex
from torchenv.system.documents import Table
from torchenv.system.values import frozen

HEADER = """\
What PyTorch's indexes serve, where that is not what torchenv's packaged catalogue says.
Written by `torchenv catalogue update`; entries of your own may be added, and stay.\
"""

# An index serves files. What a new build needs of a driver or a GPU is nowhere in them.
UNTOLD = frozenset({"release-new", "backend-new"})


def corrections(catalogue: Catalogue, differences: Iterable[CatalogueDifference]) -> dict[str, Any]:
    """Turn differences into entries for a catalogue that is laid over this one; empty where none can be."""
    told = [difference for difference in differences if difference.code not in UNTOLD]
    releases = {release.version: release for release in catalogue.releases}
    versions = dict.fromkeys(command.torch for command in told)
    each_release = (
        _release(releases[version], [command for command in told if command.torch == version])
        for version in versions
    )
    entries = [item for item in each_release if len(item) > 1]
    return {"schema": SCHEMA, "release": entries} if entries else {}


@frozen(kw_only=True)
class CatalogueNews:
    """What the indexes taught: the entries to lay over the catalogue, and each difference that they settle.

    `open` are the differences of which the index does not tell enough.
    """

    entries: Mapping[str, Any]
    settled: tuple[CatalogueDifference, ...]
    open: tuple[CatalogueDifference, ...]


def learn(
    document: Mapping[str, Any], fetch: Fetch, mirror: TorchIndex | None = None, *, today: str
) -> CatalogueNews:
    """Compare a catalogue with the indexes, and turn what they say otherwise into entries.

    `document` is the whole catalogue as it is written. A new patch release of a known line is taken with the
    backends that the line has. Raises `ToolFailed` where the index cannot be reached.
    """
    catalogue = parse(Table(document, "the catalogue"))
    index = mirror or TorchIndex(catalogue.index_root)
    differences = check(catalogue, fetch, mirror)
    patches = describe_new_patches(document, differences, index, fetch, today=today)
    taken = {patch["version"] for patch in patches}
    settled = tuple(
        difference
        for difference in differences
        if difference.code not in UNTOLD or str(difference.torch) in taken
    )
    entries: dict[str, Any] = {"schema": SCHEMA, "release": patches} if patches else {}
    if patches:
        # What the index has of the new releases is compared once more, now that they are known.
        catalogue = parse(Table(lay_over(document, entries), "the catalogue"))
        differences = check(catalogue, fetch, mirror)
    if corrected := corrections(catalogue, differences):
        entries = lay_over(entries, corrected)
    still = tuple(difference for difference in differences if difference.code in UNTOLD)
    return CatalogueNews(entries=entries, settled=settled, open=still)


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Make the user's catalogue hold a document, at once; what is in it and agrees stays as it is written.

    Of a link it is what it leads to that is written. Raises `InputError` where its place refuses.
    """
    goal = Path(os.path.realpath(path))
    beside = goal.with_name(f".{goal.name}.{secrets.token_hex(8)}.new")
    try:
        text = _edit(path, document)
        goal.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("x", encoding="utf-8", newline="") as file:
                file.write(text)
            with suppress(FileNotFoundError):
                beside.chmod(stat.S_IMODE(goal.stat().st_mode))
            beside.replace(goal)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def _edit(path: Path, document: Mapping[str, Any]) -> str:
    import tomlkit

    try:
        before = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        text = tomlkit.document()
        for line in HEADER.splitlines():
            text.add(tomlkit.comment(line))
        text.update(document)
        return tomlkit.dumps(text)
    text = tomlkit.parse(before.replace("\r\n", "\n"))
    _change(text, document)
    changed = tomlkit.dumps(text)
    # A file that is written in an odd order may not come out as meant.
    if tomllib.loads(changed) != document:
        raise InputError(f"{path} cannot be changed without rewriting all of it")
    return changed.replace("\n", "\r\n") if "\r\n" in before else changed


def _change(there: Any, wanted: Mapping[str, Any]) -> None:
    """Set in a table of tomlkit what is otherwise than wanted, and nothing else."""
    for key, value in wanted.items():
        before = there.get(key)
        if before is None or before == value:
            if before is None:
                there[key] = value
        elif isinstance(value, dict) and isinstance(before, dict):
            _change(before, value)
        elif _are_entries(before) and _are_entries(value) and len(before) <= len(value):
            # Entries stay in their order, and new ones come last.
            for entry, item in zip(before, value, strict=False):
                _change(entry, item)
            for item in value[len(before) :]:
                before.append(item)
        else:
            there[key] = value


def _are_entries(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _release(release: Release, told: list[CatalogueDifference]) -> dict[str, Any]:
    entry: dict[str, Any] = {"version": str(release.version)}
    if backends := list(_backends(release, told)):
        entry["backend"] = backends
    if companions := list(_companions(release, told)):
        entry["companion"] = companions
    return entry


def _backends(release: Release, told: list[CatalogueDifference]) -> Iterator[dict[str, Any]]:
    for backend in release.backends:
        mine = [command for command in told if command.backend == backend.tag]
        entry: dict[str, Any] = {"tag": backend.tag}
        if any(item.code == "backend-missing" for item in mine):
            entry["platforms"] = []
        elif changed := _find_change(backend.platforms, mine, "platform"):
            entry["platforms"] = changed
        listed = release.pythons if backend.pythons is None else backend.pythons
        if changed := _find_change(listed, mine, "python"):
            entry["pythons"] = sorted(changed, key=by_number)
        if len(entry) > 1:
            yield entry


def _companions(release: Release, told: list[CatalogueDifference]) -> Iterator[dict[str, Any]]:
    for companion in release.companions.values():
        mine = [command for command in told if command.subject == companion.name]
        if not mine:
            continue
        there = {str(item.backend) for item in mine if item.code == "companion-new"}
        gone = {str(item.backend) for item in mine if item.code == "companion-missing"}
        known = companion.backends
        if known is None:
            known = frozenset(backend.tag for backend in release.backends) - companion.missing
        yield {
            "name": companion.name,
            "backends": sorted((known | there) - gone),
            "missing": sorted((companion.missing | gone) - there),
        }


def _find_change(listed: Iterable[str], told: list[CatalogueDifference], kind: str) -> list[str] | None:
    new = {
        difference.subject for difference in told if difference.code == f"{kind}-new" and difference.subject
    }
    # A Python that one platform lacks and another has stays listed: the index is asked before a build.
    missing = (
        {difference.subject for difference in told if difference.code == f"{kind}-missing"}
        if kind == "platform"
        else set()
    )
    if not new and not missing:
        return None
    return sorted((set(listed) | new) - missing)
