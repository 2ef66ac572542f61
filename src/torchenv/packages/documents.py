"""A project's pyproject.toml and PEP 751 locks: what they ask for beside torch's family."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from torchenv.catalogue.releases import Catalogue
from torchenv.errors import InputError
from torchenv.packages.installed import TOOLS, version_asks
from torchenv.packages.requirements_file import ReadText, read_requirements_file
from torchenv.packages.uv_sources import UvSources
from torchenv.packages.values import (
    CarriedPackages,
    CarriedRequirement,
    PackageListing,
    PackageNote,
    PythonBound,
    Wanted,
)
from torchenv.system.documents import Table, nearest

if TYPE_CHECKING:
    from packaging.pylock import Package


def of_project(
    table: Table, extras: Iterable[str], directory: Path, read: ReadText, *, private: Sequence[str] = ()
) -> PackageListing:
    """Return what a pyproject.toml in `directory` lists, with the extras and groups that are named.

    `private` are the names, such as `corp-*`, that the profile binds to an index of its own. Raises
    `InputError` for what can be neither obeyed nor left to the plan.
    """
    project = table.table("project")
    if "project" not in table and "poetry" in table.table("tool"):
        hint = (
            "run `torchenv init --from pyproject.toml`, or export them: `poetry export -o requirements.txt`"
        )
        raise InputError(f"{table.source}: [tool.poetry] dependencies are not supported", hint=hint)
    found = PackageListing()
    if "dependencies" in project.strings("dynamic"):
        found.extend(_read_dynamic(table, directory, read))
    asked: list[tuple[str, str, str | None]]
    asked = [(text, table.source, None) for text in project.strings("dependencies")]
    for extra in extras:
        asked += [(text, f"{table.source}[{extra}]", extra) for text in _extra(table, extra, ())]
    sources = UvSources(table, directory, read, private=private)
    for text, source, named in asked:
        sources.obey(_check(text, source), text, source, named, found)
    python = project.maybe("requires-python", str)
    if python is not None:
        found.pythons.append(_parse_bound(table, python))
    uv = table.table("tool").table("uv")
    for text in uv.strings("constraint-dependencies"):
        _check(text, table.source)
        found.constraints.append(CarriedRequirement(text, table.source))
    for text in uv.strings("override-dependencies"):
        _check(text, table.source)
        found.overrides.append(CarriedRequirement(text, table.source))
    found.notes += _note_indexes(uv)
    _refuse_unheeded(table)
    found.extend(_read_pixi(table))
    return found


def _check(text: str, source: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        said = str(error).partition("\n")[0]
        raise InputError(f"{source}: `{text}` is not a requirement: {said}") from None


def _parse_bound(table: Table, python: str) -> PythonBound:
    try:
        SpecifierSet(python)
    except InvalidSpecifier:
        raise InputError(f"{table.source}: project.requires-python: `{python}` is not a range") from None
    return PythonBound(python, table.source)


def _read_dynamic(table: Table, directory: Path, read: ReadText) -> PackageListing:
    """Read the files from which setuptools would take the dependencies."""
    # [tool.setuptools.dynamic]
    # dependencies = { file = ["requirements.txt"] }
    dependencies = table.table("tool").table("setuptools").table("dynamic").table("dependencies")
    named = dependencies.raw().get("file", [])
    files = [named] if isinstance(named, str) else dependencies.strings("file")
    if not files:
        hint = "name the file that its build tool reads them from, such as requirements.txt"
        raise InputError(f"{table.source}: its dependencies are known only to its build tool", hint=hint)
    found = PackageListing()
    for name in files:
        found.extend(read_requirements_file(directory / name, read))
    return found


def _note_indexes(uv: Table) -> list[PackageNote]:
    hint = "name indexes under [index] in torchenv.toml"
    places = [f"tool.uv.index[{position}]" for position, _ in enumerate(uv.tables("index"))]
    places += [f"tool.uv.{key}" for key in ("index-url", "extra-index-url", "find-links") if key in uv]
    return [PackageNote("ignored", f"{uv.source}: {place} is ignored: {hint}") for place in places]


# What would change which packages are chosen, and has no place in a lock of torchenv's.
_UNHEEDED = {
    "exclude-newer": "write exclude-newer under [packages] of torchenv.toml",
    "exclude-dependencies": "ask for what remains under [packages] requirements of torchenv.toml",
    "dependency-metadata": "ask for what it adds under [packages] requirements of torchenv.toml",
    "resolution": "bound the packages that are to be old under [packages] constraints of torchenv.toml",
    "prerelease": "ask for the pre-release by its version under [packages] requirements of torchenv.toml",
}


def _refuse_unheeded(table: Table) -> None:
    uv = table.table("tool").table("uv")
    for key, remedy in _UNHEEDED.items():
        if key in uv:
            raise InputError(
                f"{table.source}: tool.uv.{key} is not supported", hint=f"remove it, and {remedy}"
            )


def _read_pixi(table: Table) -> PackageListing:
    """Read what pixi's tables add to a project; packages of conda's channels are refused by name."""
    pixi = table.table("tool").table("pixi")
    found = PackageListing()
    for name, text in read_pixi_requirements(pixi):
        found.requirements.append(CarriedRequirement(text, f"{table.source}: {name}"))
    conda = [name for name in pixi.table("dependencies") if name != "python"]
    if conda:
        raise InputError(
            f"{table.source}: tool.pixi.dependencies asks conda's channels for {', '.join(conda)}",
            hint=f"run `torchenv init --from {table.source}` to ask the package index for them",
        )
    return found


def read_pixi_requirements(pixi: Table) -> list[tuple[str, str]]:
    """Return the `pypi-dependencies` of pixi as requirements, each with its place; raises `InputError`."""
    found = []
    for name in pixi.table("pypi-dependencies"):
        place = f"pypi-dependencies.{name}"
        value = pixi.table("pypi-dependencies").raw()[name]
        details = value if isinstance(value, dict) else {"version": value}
        extras = f"[{','.join(details.get('extras', ()))}]" if details.get("extras") else ""
        if unknown := details.keys() - {"version", "extras", "git", "rev", "tag", "branch", "url", "index"}:
            raise InputError(f"{pixi.source}: {place}: {', '.join(sorted(unknown))} is not supported")
        if "index" in details:
            raise InputError(
                f"{pixi.source}: {place} comes from an index of its own",
                hint="name that index under [[index.private]] of torchenv.toml, with this package",
            )
        if "git" in details:
            revision = next((details[key] for key in ("rev", "tag", "branch") if key in details), None)
            found.append(
                (place, f"{name}{extras} @ git+{details['git']}{f'@{revision}' if revision else ''}")
            )
        elif "url" in details:
            found.append((place, f"{name}{extras} @ {details['url']}"))
        else:
            found.append((place, f"{name}{extras}{read_conda_range(str(details.get('version', '*')))}"))
    return found


def read_conda_range(version: str) -> str:
    """Return a range of conda's as one of PEP 440: `*` is any, `2.1` and `2.1.*` are that line."""
    text = version.strip().strip('"')
    if text in {"", "*"}:
        return ""
    parts = [part.strip() for part in text.split(",")]
    return ",".join(
        part if re.match(r"[<>=!~]", part) and not re.fullmatch(r"=[^=].*", part) else _line(part.lstrip("="))
        for part in parts
    )


def _line(version: str) -> str:
    return f"=={version}" if version.endswith(".*") else f"=={version}.*"


def of_lock(table: Table, catalogue: Catalogue) -> CarriedPackages:
    """Return the topmost packages of a lock, or all where it does not say which needs which."""
    from packaging.pylock import Pylock, PylockValidationError

    try:
        pylock = Pylock.from_dict(table.raw())
    except PylockValidationError as error:
        raise InputError(f"{table.source}: not a valid lock: {error}", hint="lock again") from None
    below = {needed.get("name") for package in pylock.packages for needed in package.dependencies or ()}
    wanted: dict[str, Wanted] = {}
    family, notes = [], []
    for package in pylock.packages:
        name = str(package.name)
        if name in catalogue.family:
            family += [CarriedRequirement(name, table.source)] if name != "torch" else []
        elif package.directory is not None:
            said = f"{table.source}: {name} is a folder of one machine: install it afterwards by hand"
            notes.append(PackageNote("local", said))
        elif name not in below | TOOLS and not catalogue.is_brought_along(name):
            wanted.setdefault(name, _make_wanted(package, table.source))
    return CarriedPackages(wanted=tuple(wanted.values()), family=tuple(family), notes=tuple(notes))


def _extra(table: Table, extra: str, above: tuple[str, ...]) -> list[str]:
    from packaging.dependency_groups import resolve_dependency_groups

    project = table.table("project")
    optional = {canonicalize_name(key): key for key in project.table("optional-dependencies")}
    groups = {canonicalize_name(key): key for key in table.table("dependency-groups")}
    name = canonicalize_name(extra)
    if name in above:
        return []
    if name in optional:
        found = project.table("optional-dependencies").strings(optional[name])
        return [line for text in found for line in _own_extras(table, text, (*above, name))]
    if name in groups:
        try:
            return list(resolve_dependency_groups(table.table("dependency-groups").raw(), groups[name]))
        except ExceptionGroup as errors:
            said = str(errors.exceptions[0]).partition("\n")[0]
            raise InputError(f"{table.source}: dependency-groups.{groups[name]}: {said}") from None
    hint = nearest(name, {*optional, *groups}) or "name an extra or a dependency group of the project"
    raise InputError(f"{table.source} has no extra or dependency group `{extra}`", hint=hint)


def _own_extras(table: Table, text: str, above: tuple[str, ...]) -> list[str]:
    """Return a requirement, or in place of a project's own extras what they list."""
    # all = ["mine[plots,dev]"]
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return [text]
    own = table.table("project").get("name", str, "")
    if not own or canonicalize_name(requirement.name) != canonicalize_name(own):
        return [text]
    return [line for extra in sorted(requirement.extras) for line in _extra(table, extra, above)]


def _make_wanted(package: Package, source: str) -> Wanted:
    name, version = str(package.name), str(package.version or "")
    marker = f" ; {package.marker}" if package.marker else ""
    if package.vcs is not None and package.vcs.url:
        folder = f"#subdirectory={package.vcs.subdirectory}" if package.vcs.subdirectory else ""
        asks: tuple[str, ...] = (
            f"{name} @ {package.vcs.type}+{package.vcs.url}@{package.vcs.commit_id}{folder}",
        )
        version = version or package.vcs.commit_id[:12]
    elif package.archive is not None and package.archive.url:
        asks = (f"{name} @ {package.archive.url}",)
    else:
        asks = version_asks(name, version) if version else (name,)
    return Wanted(name=name, version=version, source=source, asks=tuple(f"{ask}{marker}" for ask in asks))
