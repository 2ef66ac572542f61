"""A project's pyproject.toml and PEP 751 locks: what they ask for beside torch's family."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from torchenv.catalogue import Catalogue
from torchenv.errors import InputError
from torchenv.packages.installed import TOOLS, version_asks
from torchenv.packages.values import CarriedPackages, CarriedRequirement, PackageNote, Wanted
from torchenv.system.documents import Table, nearest

if TYPE_CHECKING:
    from packaging.pylock import Package


def of_project(table: Table, extras: Iterable[str]) -> tuple[list[CarriedRequirement], list[PackageNote]]:
    """Return the dependencies of `[project]`, with the extras and dependency groups that are named."""
    project = table.table("project")
    if "dependencies" in project.strings("dynamic"):
        hint = "name the file that its build tool reads them from, such as requirements.txt"
        raise InputError(f"{table.source}: its dependencies are known only to its build tool", hint=hint)
    if "project" not in table and "poetry" in table.table("tool"):
        hint = "move them to [project], or export them: `poetry export -o requirements.txt`"
        raise InputError(f"{table.source}: [tool.poetry] dependencies are not read", hint=hint)
    asked = [CarriedRequirement(each, table.source) for each in project.strings("dependencies")]
    for extra in extras:
        asked += [CarriedRequirement(each, f"{table.source}[{extra}]") for each in _extra(table, extra, ())]
    for each in asked:
        try:
            Requirement(each.requirement)
        except InvalidRequirement as error:
            said = str(error).partition("\n")[0]
            raise InputError(f"{each.source}: {each.requirement!r} is not a requirement: {said}") from None
    sources = table.table("tool").table("uv").table("sources")
    notes = [
        PackageNote("ignored", f"{table.source}: tool.uv.sources.{name} is not obeyed")
        for name in sources
        if name in {canonicalize_name(Requirement(each.requirement).name) for each in asked}
    ]
    return asked, notes


def of_lock(table: Table, catalogue: Catalogue) -> CarriedPackages:
    """Return the topmost packages of a lock, or all where it does not say which needs which."""
    from packaging.pylock import Pylock, PylockValidationError

    try:
        pylock = Pylock.from_dict(table.raw())
    except PylockValidationError as error:
        raise InputError(f"{table.source}: not a valid lock: {error}", hint="make the lock again") from None
    below = {each.get("name") for package in pylock.packages for each in package.dependencies or ()}
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
    optional = {canonicalize_name(each): each for each in project.table("optional-dependencies")}
    groups = {canonicalize_name(each): each for each in table.table("dependency-groups")}
    name = canonicalize_name(extra)
    if name in above:
        return []
    if name in optional:
        found = project.table("optional-dependencies").strings(optional[name])
        return [each for text in found for each in _own_extras(table, text, (*above, name))]
    if name in groups:
        try:
            return list(resolve_dependency_groups(table.table("dependency-groups").raw(), groups[name]))
        except ExceptionGroup as errors:
            said = str(errors.exceptions[0]).partition("\n")[0]
            raise InputError(f"{table.source}: dependency-groups.{groups[name]}: {said}") from None
    hint = nearest(name, {*optional, *groups}) or "name an extra or a dependency group of the project"
    raise InputError(f"{table.source} has no extra or dependency group {extra!r}", hint=hint)


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
    return [each for extra in sorted(requirement.extras) for each in _extra(table, extra, above)]


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
    return Wanted(name=name, version=version, source=source, asks=tuple(f"{each}{marker}" for each in asks))
