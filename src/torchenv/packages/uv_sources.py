"""`[tool.uv.sources]` of a project: each is obeyed, or refused by name; none is left to the general index."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from torchenv.errors import InputError
from torchenv.packages.requirements_file import ReadText
from torchenv.packages.values import CarriedRequirement, IndexBinding, PackageListing, SourceFolder
from torchenv.system.documents import Table
from torchenv.system.looking import find_paths
from torchenv.system.values import frozen

# pyproject.toml of the workspace that a project is a member of lies at most this many folders above.
_ABOVE = 6


@frozen
class WrittenSource:
    """What a file says of where a package comes from, and the folder that its paths are relative to."""

    value: Any
    place: str
    directory: Path


class UvSources:
    """The sources of one project file, and those of the workspace that it belongs to."""

    def __init__(self, table: Table, directory: Path, read: ReadText, *, private: Sequence[str] = ()) -> None:
        self._directory = directory
        self._read = read
        self._private = private
        self._sources = dict(_sources_of(table, directory))
        if "workspace" not in table.table("tool").table("uv"):
            self._sources = {**self._find_inherited(), **self._sources}

    def obey(
        self, requirement: Requirement, text: str, source: str, extra: str | None, found: PackageListing
    ) -> None:
        """Add a requirement as its source says; raises `InputError` for one that can only be refused."""
        name = canonicalize_name(requirement.name)
        written = self._sources.get(name)
        choices = [
            one
            for one in _choices(written and written.value)
            if one.get("extra", one.get("group", extra)) == extra
        ]
        if not choices or written is None:
            found.requirements.append(CarriedRequirement(text, source))
            return
        place = written.place
        if len(choices) > 1 and not all("index" in one for one in choices):
            raise InputError(
                f"{place}: several sources for one package are not supported",
                hint="name the one that is wanted for each target under [[target]] packages",
            )
        self._obey_one(choices[0], requirement, CarriedRequirement(text, source), written, found)

    def _obey_one(
        self,
        choice: Mapping[str, Any],
        requirement: Requirement,
        asked: CarriedRequirement,
        written: WrittenSource,
        found: PackageListing,
    ) -> None:
        place = written.place
        match choice:
            case {"index": str(index)}:
                found.requirements.append(asked)
                name = canonicalize_name(requirement.name)
                if not any(fnmatch(name, pattern) for pattern in self._private):
                    found.indexed.append(IndexBinding(name, index, place))
            case {"workspace": True}:
                found.folders.append(self._find_member(requirement, place))
            case {"path": str(path)}:
                self._add_path(path, choice, requirement, written, found)
            case {"git": str(address)}:
                found.requirements.append(_at(requirement, _git(address, choice), asked.source))
            case {"url": str(address)}:
                found.requirements.append(_at(requirement, address, asked.source))
            case _:
                raise InputError(f"{place} is not supported", hint="ask for the package in another way")

    def _add_path(
        self,
        path: str,
        choice: Mapping[str, Any],
        requirement: Requirement,
        written: WrittenSource,
        found: PackageListing,
    ) -> None:
        place = written.place
        if path.endswith((".whl", ".zip", ".tar.gz")):
            raise InputError(
                f"{place}: {path} is a file of one machine",
                hint="publish it on an index, or name the folder that it is built from",
            )
        folder = Path(os.path.normpath(written.directory / path))
        editable = choice.get("editable") is True
        found.folders.append(
            SourceFolder(
                folder,
                editable=editable,
                source=place,
                name=requirement.name,
                extras=tuple(sorted(requirement.extras)),
            )
        )

    def _find_inherited(self) -> dict[str, WrittenSource]:
        """Return the sources of the workspace above, which hold for its members too."""
        for root in self._directory.parents[:_ABOVE]:
            with suppress(InputError):
                table = Table.from_toml(self._read(root / "pyproject.toml"), str(root / "pyproject.toml"))
                if self._directory in self._members(root):
                    return dict(_sources_of(table, root))
        return {}

    def _find_member(self, requirement: Requirement, place: str) -> SourceFolder:
        name = requirement.name
        for root in (self._directory, *self._directory.parents[:_ABOVE]):
            for folder in self._members(root):
                with suppress(InputError):
                    text = self._read(folder / "pyproject.toml")
                    project = Table.from_toml(text, str(folder / "pyproject.toml")).table("project")
                    if canonicalize_name(project.get("name", str, "")) == canonicalize_name(name):
                        extras = tuple(sorted(requirement.extras))
                        return SourceFolder(folder, editable=True, source=place, name=name, extras=extras)
        raise InputError(
            f"{place}: no member of the workspace is called `{name}`",
            hint="check [tool.uv.workspace] members, or name its folder with `path`",
        )

    def _members(self, root: Path) -> Iterator[Path]:
        try:
            table = Table.from_toml(self._read(root / "pyproject.toml"), str(root / "pyproject.toml"))
        except InputError:
            return
        workspace = table.table("tool").table("uv").table("workspace")
        excluded = {
            folder for pattern in workspace.strings("exclude") for folder in find_paths(root, pattern)
        }
        yield root
        for pattern in workspace.strings("members"):
            yield from (folder for folder in find_paths(root, pattern) if folder not in excluded)


def _sources_of(table: Table, directory: Path) -> Iterator[tuple[str, WrittenSource]]:
    sources = table.table("tool").table("uv").table("sources").raw()
    for key, value in sources.items():
        place = f"{table.source}: tool.uv.sources.{key}"
        yield canonicalize_name(key), WrittenSource(value, place, directory)


def _choices(value: Any) -> list[Mapping[str, Any]]:
    listed = value if isinstance(value, list) else [] if value is None else [value]
    return [one for one in listed if isinstance(one, dict)]


def _git(address: str, choice: Mapping[str, Any]) -> str:
    revision = next((choice[key] for key in ("rev", "tag", "branch") if key in choice), None)
    folder = choice.get("subdirectory")
    return f"git+{address}{f'@{revision}' if revision else ''}{f'#subdirectory={folder}' if folder else ''}"


def _at(requirement: Requirement, address: str, source: str) -> CarriedRequirement:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return CarriedRequirement(f"{requirement.name}{extras} @ {address}{marker}", source)
