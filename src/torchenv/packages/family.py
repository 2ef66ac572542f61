"""Torch's family among what is asked for: the plan decides on it, and a demand that it breaks is named."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import Requirement

from torchenv.catalogue import Catalogue
from torchenv.environment.inspect import canonical
from torchenv.errors import NothingSuits
from torchenv.packages.values import CarriedPackages, CarriedRequirement, PackageNote


def sort_out(
    catalogue: Catalogue,
    asked: Iterable[CarriedRequirement],
    constraints: Iterable[CarriedRequirement] = (),
    notes: Iterable[PackageNote] = (),
) -> CarriedPackages:
    """Part what is asked for into torch's family, what torch itself brings, and everything else."""
    others, family, bounds, family_bounds, said = [], [], [], [], list(notes)
    for each in asked:
        name = _name(each)
        if name in catalogue.family:
            family.append(each)
            said += _note_unheeded(each)
        elif catalogue.is_brought_along(name):
            said.append(
                PackageNote(
                    "by-torch", f"{each.source}: {each.requirement} is left to torch, which brings it"
                )
            )
        else:
            others.append(each)
    for each in constraints:
        name = _name(each)
        if name in catalogue.family:
            family_bounds.append(each)
        elif not catalogue.is_brought_along(name):
            bounds.append(each)
    return CarriedPackages(
        requirements=tuple(others),
        constraints=tuple(bounds),
        family=tuple(family),
        family_constraints=tuple(family_bounds),
        notes=tuple(said),
    )


def companions(carried: CarriedPackages, platform: str) -> tuple[str, ...]:
    """Return the packages of torch's family beside torch that are asked for on a platform, for the plan."""
    names = (
        canonical(requirement.name)
        for requirement in (Requirement(each.requirement) for each in carried.family)
        if holds(requirement, platform)
    )
    return tuple(dict.fromkeys(each for each in names if each != "torch"))


def refuse_conflicts(carried: CarriedPackages, planned: Iterable[str], *, platform: str, python: str) -> None:
    """Raise `NothingSuits` where something that is asked of torch's family is not what is planned.

    `planned` are the plan's requirements, such as `torch==2.15.0+cu132`; `python` is a minor such as `3.12`.
    """
    plan = {canonical(each.name): each for each in map(Requirement, planned)}
    broken = []
    for asked in (*carried.family, *carried.family_constraints):
        wants = Requirement(asked.requirement)
        has = plan.get(canonical(wants.name))
        if has is None or not holds(wants, platform, python):
            continue
        version = next(iter(has.specifier)).version
        if not wants.specifier.contains(version, prereleases=True):
            broken.append((asked, wants, has))
    if broken:
        said = "; ".join(
            f"{asked.source} wants {wants.name}{wants.specifier}, and the plan has {has}"
            for asked, wants, has in broken
        )
        _, wants, _ = broken[0]
        hint = f"loosen or remove that line, or plan a release that it takes: {wants.name}{wants.specifier}"
        raise NothingSuits(said, hint=hint)


def holds(requirement: Requirement, platform: str, python: str | None = None) -> bool:
    """Return whether a requirement's marker holds on a platform such as `linux-x86_64`.

    Without a Python its version counts as that of the one that runs torchenv.
    """
    if requirement.marker is None:
        return True
    system, _, machine = platform.partition("-")
    names = {"linux": ("linux", "Linux"), "darwin": ("darwin", "Darwin"), "windows": ("win32", "Windows")}
    sys_platform, platform_system = names[system]
    given = {
        "sys_platform": sys_platform,
        "platform_system": platform_system,
        "os_name": "nt" if system == "windows" else "posix",
        "platform_machine": machine.upper().replace("X86_64", "AMD64") if system == "windows" else machine,
    }
    if python is not None:
        minor = python.rstrip("t")
        given |= {"python_version": minor, "python_full_version": f"{minor}.0"}
    return requirement.marker.evaluate({**given, "extra": ""})


def _note_unheeded(asked: CarriedRequirement) -> list[PackageNote]:
    requirement = Requirement(asked.requirement)
    if requirement.url is not None:
        said = f"{asked.source}: {requirement.name} comes from the plan's index, not from {requirement.url}"
        return [PackageNote("ignored", said)]
    if requirement.extras:
        extras = ",".join(sorted(requirement.extras))
        said = (
            f"{asked.source}: the extras of {requirement.name}[{extras}] are left out: list what they bring"
        )
        return [PackageNote("ignored", said)]
    return []


def _name(asked: CarriedRequirement) -> str:
    return canonical(Requirement(asked.requirement).name)
