"""What is carried into a new environment beside torch's family, and what is to be said about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement

from torchenv.environment.inspect import canonical
from torchenv.system.values import frozen


@frozen
class CarriedRequirement:
    """A PEP 508 requirement that holds as it is written; `source` is the file, with the line, that asks."""

    requirement: str
    source: str


@frozen(kw_only=True)
class Wanted:
    """A package that an environment or a lock has and that is to go along, at the same version if it can.

    `asks` are requirements, the best first: each that does not resolve gives way to the next, and without
    a next one the package is left out.
    """

    name: str
    version: str
    source: str
    asks: tuple[str, ...]


@frozen
class PackageNote:
    """What a person should know of something that was read: `ignored`, `local` or `by-torch`."""

    code: str
    message: str


@frozen
class SourceFolder:
    """A folder that a file names in place of a released package; `name` is its name there."""

    path: Path
    editable: bool
    source: str
    name: str | None = None
    extras: tuple[str, ...] = ()


@frozen
class IndexBinding:
    """A package that a file takes from an index by that index's name; `source` is where it says so."""

    name: str
    index: str
    source: str


@dataclass(slots=True)
class PackageListing:
    """What a file and those that it names ask for, before torch's family is parted from it.

    `of_folders` is what local packages ask for, whose pins of torch do not hold.
    """

    requirements: list[CarriedRequirement] = field(default_factory=list)
    of_folders: list[CarriedRequirement] = field(default_factory=list)
    constraints: list[CarriedRequirement] = field(default_factory=list)
    overrides: list[CarriedRequirement] = field(default_factory=list)
    folders: list[SourceFolder] = field(default_factory=list)
    indexed: list[IndexBinding] = field(default_factory=list)
    local: list[LocalPackage] = field(default_factory=list)
    pythons: list[PythonBound] = field(default_factory=list)
    notes: list[PackageNote] = field(default_factory=list)

    def extend(self, other: PackageListing) -> None:
        """Add what another file asks for."""
        self.requirements += other.requirements
        self.of_folders += other.of_folders
        self.constraints += other.constraints
        self.overrides += other.overrides
        self.folders += other.folders
        self.indexed += other.indexed
        self.local += other.local
        self.pythons += other.pythons
        self.notes += other.notes


@frozen(kw_only=True)
class CannotFollow:
    """A package that goes only with the torch it was made for, and what there is instead."""

    name: str
    version: str
    why: str
    exists: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} cannot follow: {self.why}; {self.exists}"


@frozen(kw_only=True)
class LocalPackage:
    """A folder of the project that is a package: built where the environment is, without its dependencies.

    `path` is relative to the project where it lies within; its dependencies are asked for beside it.
    """

    name: str
    path: str
    editable: bool
    source: str


@frozen
class PythonBound:
    """The versions of Python that a project file allows, such as `>=3.12`."""

    specifier: str
    source: str


@frozen(kw_only=True)
class CarriedPackages:
    """All of it: what holds, what gives way, and what is asked of torch's family, which the plan decides.

    `overrides` stand in place of whatever any package asks of their names.
    """

    requirements: tuple[CarriedRequirement, ...] = ()
    constraints: tuple[CarriedRequirement, ...] = ()
    overrides: tuple[CarriedRequirement, ...] = ()
    local: tuple[LocalPackage, ...] = ()
    pythons: tuple[PythonBound, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    family: tuple[CarriedRequirement, ...] = ()
    family_constraints: tuple[CarriedRequirement, ...] = ()
    notes: tuple[PackageNote, ...] = ()
    cannot_follow: tuple[CannotFollow, ...] = ()


def together(*parts: CarriedPackages) -> CarriedPackages:
    """Put what comes from several places together; a name that is asked for twice is wanted once."""
    requirements = tuple(dict.fromkeys(asked for part in parts for asked in part.requirements))
    names = {canonical(Requirement(asked.requirement).name) for asked in requirements}
    wanted: dict[str, Wanted] = {}
    for package in (package for part in parts for package in part.wanted):
        if package.name not in names:
            wanted.setdefault(package.name, package)
    local: dict[str, LocalPackage] = {}
    for folder in (folder for part in parts for folder in part.local):
        local.setdefault(folder.name, folder)
    return CarriedPackages(
        requirements=requirements,
        constraints=tuple(bound for part in parts for bound in part.constraints),
        overrides=tuple(dict.fromkeys(asked for part in parts for asked in part.overrides)),
        local=tuple(local.values()),
        pythons=tuple(dict.fromkeys(bound for part in parts for bound in part.pythons)),
        wanted=tuple(wanted.values()),
        family=tuple(asked for part in parts for asked in part.family),
        family_constraints=tuple(bound for part in parts for bound in part.family_constraints),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        cannot_follow=tuple(package for part in parts for package in part.cannot_follow),
    )


def list_lines(carried: CarriedPackages) -> list[str]:
    """Return what is asked for, a line each and sorted: what decides a lock, however files say it."""
    asked = (*carried.requirements, *carried.family)
    return sorted(
        {
            *(_join_words(requirement.requirement) for requirement in asked),
            *(f"-c {_join_words(bound.requirement)}" for bound in carried.constraints),
            *(f"-c {_join_words(bound.requirement)}" for bound in carried.family_constraints),
            *(f"override {_join_words(override.requirement)}" for override in carried.overrides),
            *(f"{'-e ' if folder.editable else ''}{folder.name} @ {folder.path}" for folder in carried.local),
            *(f"python{bound.specifier}" for bound in carried.pythons),
            *(package.asks[0] for package in carried.wanted if package.asks),
        }
    )


def _join_words(requirement: str) -> str:
    return " ".join(requirement.split())
