"""What is carried into a new environment beside torch's family, and what is to be said about it."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.requirements import Requirement

from torchenv.environment.inspect import canonical


@dataclass(frozen=True, slots=True)
class CarriedRequirement:
    """A PEP 508 requirement that holds as it is written; `source` is the file, with the line, that asks."""

    requirement: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A package that an environment or a lock has and that is to go along, at the same version if it can.

    `asks` are requirements, the best first: each that does not resolve gives way to the next, and without
    a next one the package is left out.
    """

    name: str
    version: str
    source: str
    asks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PackageNote:
    """What a person should know of something that was read: `ignored`, `local` or `by-torch`."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CannotFollow:
    """A package that goes only with the torch it was made for, and what there is instead."""

    name: str
    version: str
    why: str
    exists: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} cannot follow: {self.why}; {self.exists}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CarriedPackages:
    """All of it: what holds, what gives way, and what is asked of torch's family, which the plan decides."""

    requirements: tuple[CarriedRequirement, ...] = ()
    constraints: tuple[CarriedRequirement, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    family: tuple[CarriedRequirement, ...] = ()
    family_constraints: tuple[CarriedRequirement, ...] = ()
    notes: tuple[PackageNote, ...] = ()
    cannot_follow: tuple[CannotFollow, ...] = ()


def together(*parts: CarriedPackages) -> CarriedPackages:
    """Put what comes from several places together; a name that is asked for twice is wanted once."""
    requirements = tuple(dict.fromkeys(each for part in parts for each in part.requirements))
    asked = {canonical(Requirement(each.requirement).name) for each in requirements}
    wanted: dict[str, Wanted] = {}
    for each in (each for part in parts for each in part.wanted):
        if each.name not in asked:
            wanted.setdefault(each.name, each)
    return CarriedPackages(
        requirements=requirements,
        constraints=tuple(each for part in parts for each in part.constraints),
        wanted=tuple(wanted.values()),
        family=tuple(each for part in parts for each in part.family),
        family_constraints=tuple(each for part in parts for each in part.family_constraints),
        notes=tuple(dict.fromkeys(each for part in parts for each in part.notes)),
        cannot_follow=tuple(each for part in parts for each in part.cannot_follow),
    )
