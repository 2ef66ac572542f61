"""Torch's family among what is asked for: the plan decides on it, and a demand that it breaks is named."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from torchenv.catalogue.releases import Catalogue
from torchenv.environment.inspect import canonical
from torchenv.errors import InputError, NothingSuits
from torchenv.packages.values import (
    CarriedPackages,
    CarriedRequirement,
    IndexBinding,
    PackageListing,
    PackageNote,
)


def sort_out(catalogue: Catalogue, listing: PackageListing) -> CarriedPackages:
    """Part what a file lists into torch's family, what torch itself brings, and everything else."""
    others, family, bounds, family_bounds, notes = [], [], [], [], list(listing.notes)
    overrides: list[CarriedRequirement] = []
    notes += [_judge_index(binding, catalogue) for binding in listing.indexed]
    for folder in listing.local:
        if folder.name in catalogue.family:
            raise InputError(
                f"{folder.source}: {folder.name} is a folder, and the plan decides on torch's family",
                hint="leave it out, and install it by hand afterwards",
            )
    for asked in listing.requirements:
        name = _name(asked)
        if name in catalogue.family:
            family.append(asked)
            notes += _note_unheeded(asked)
        elif catalogue.is_brought_along(name):
            said = f"{asked.source}: {asked.requirement} is left to torch, which brings it"
            notes.append(PackageNote("by-torch", said))
        else:
            others.append(asked)
    for asked in listing.of_folders:
        name = _name(asked)
        if name in catalogue.family:
            family.append(_unpin(asked))
            notes.append(PackageNote("unpinned", f"{asked.source}: {asked.requirement} is left to the plan"))
        elif not catalogue.is_brought_along(name):
            others.append(asked)
    for bound in listing.constraints:
        name = _name(bound)
        if name in catalogue.family:
            family_bounds.append(bound)
        elif not catalogue.is_brought_along(name):
            bounds.append(bound)
    for override in listing.overrides:
        # An override of torch is a demand on the plan: nothing overrides what the plan decides.
        (family_bounds if _name(override) in catalogue.family else overrides).append(override)
    return CarriedPackages(
        requirements=tuple(others),
        constraints=tuple(bounds),
        overrides=tuple(overrides),
        local=tuple(listing.local),
        pythons=tuple(listing.pythons),
        family=tuple(family),
        family_constraints=tuple(family_bounds),
        notes=tuple(notes),
    )


def companions(carried: CarriedPackages, platform: str) -> tuple[str, ...]:
    """Return the packages of torch's family beside torch that are asked for on a platform, for the plan."""
    names = (
        canonical(requirement.name)
        for requirement in (Requirement(asked.requirement) for asked in carried.family)
        if holds(requirement, platform)
    )
    return tuple(dict.fromkeys(name for name in names if name != "torch"))


def refuse_conflicts(carried: CarriedPackages, planned: Iterable[str], *, platform: str, python: str) -> None:
    """Raise `NothingSuits` where something that is asked of torch's family is not what is planned.

    `planned` are the plan's requirements, such as `torch==2.15.0+cu132`; `python` is a minor such as `3.12`.
    """
    _refuse_python(carried, python)
    plan = {canonical(requirement.name): requirement for requirement in map(Requirement, planned)}
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


def _refuse_python(carried: CarriedPackages, python: str) -> None:
    version = f"{python.rstrip('t')}.999"
    for bound in carried.pythons:
        # 3.12 stands for its newest patch: `>=3.12.4` is met, `<3.12` is not.
        if not SpecifierSet(bound.specifier).contains(version, prereleases=True):
            raise NothingSuits(
                f"{bound.source} requires Python {bound.specifier}, and the plan has {python}",
                hint=f"choose another Python, or change requires-python in {bound.source}",
            )


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


def _judge_index(binding: IndexBinding, catalogue: Catalogue) -> PackageNote:
    if binding.name not in catalogue.family and not catalogue.is_brought_along(binding.name):
        # Asked of the general index by its name, it would be whatever anybody uploads there.
        raise InputError(
            f"{binding.source}: {binding.name} comes from the index `{binding.index}`",
            hint=f'name that index in torchenv.toml: [[index.private]] with packages = ["{binding.name}"]',
        )
    said = f"{binding.source} is ignored: {binding.name} comes from the plan's index"
    return PackageNote("ignored", said)


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


def _unpin(asked: CarriedRequirement) -> CarriedRequirement:
    requirement = Requirement(asked.requirement)
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return CarriedRequirement(f"{requirement.name}{marker}", asked.source)


def _name(asked: CarriedRequirement) -> str:
    return canonical(Requirement(asked.requirement).name)
