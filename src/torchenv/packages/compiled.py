"""Packages that were made for one torch: by what they require, and by what their machine code names."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from torchenv.environments import Distribution, canonical
from torchenv.packages.environment import local_path, required_by
from torchenv.packages.values import CannotFollow, Carried

# libtorch_python.so, libtorch_cuda.so, libc10.so; torch_cpu.dll, c10.dll on Windows; .dylib on macOS
_LIBRARY = re.compile(
    rb"(?:lib)?(?:torch(?:_python|_cpu|_cuda|_hip|_xpu)?|c10(?:_cuda|_hip|_xpu)?)\.(?:so|dylib|dll)\b"
)
_SUFFIXES = frozenset({".so", ".pyd", ".dll", ".dylib"})

# The names of needed libraries stand near the start of a file as linkers write it, and at its end where a
# wheel was repaired afterwards. What lies between is code of up to gigabytes.
_LOOKED_AT = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """A package that was made for another torch than is planned, and how that is known.

    `path` is where on this machine it was built, for one of the user's own.
    """

    name: str
    version: str
    why: str
    path: str | None = None


def bound_to_torch(
    distributions: Iterable[Distribution], torch: str | None, planned: Mapping[str, str]
) -> tuple[Bound, ...]:
    """Find the packages that refuse the planned family, and those with machine code for another torch.

    `torch` is the one beside them, `planned` the version of each planned package by its name. Patches of one
    line share their machine interface. That code is for torch is known from the names of torch's libraries
    in the first and last 8 MiB of a file: a guess, and never wrong for what linkers write.
    """
    same_line = torch is not None and Version(torch).release[:2] == Version(planned["torch"]).release[:2]
    found = []
    for each in distributions:
        name = canonical(each.name)
        if name in planned:
            continue
        why = _requires_other(each, planned)
        if why is None and not same_line and (library := links_torch(each)) is not None:
            why = f"{library.name} was compiled against torch {torch or 'of that environment'}"
        if why is not None:
            local = local_path(each)
            found.append(Bound(name=name, version=each.version, why=why, path=local[0] if local else None))
    return tuple(found)


def links_torch(distribution: Distribution) -> Path | None:
    """Give the first file with machine code that names a library of torch's, None where there is none."""
    for line in distribution.record():
        if line.path.suffix in _SUFFIXES and line.path.is_file() and _names_torch(line.path):
            return line.path
    return None


def following(
    carried: Carried, bound: Iterable[Bound], newer: Mapping[str, str | None], index: str
) -> Carried:
    """Ask for what is newer in place of what is bound to another torch, and list what cannot follow.

    `newer` has the newest version on the index with a wheel that fits, for each name that was asked about.
    """
    by_name = {each.name: each for each in bound}
    wanted, stay = [], [_built_here(each, each.path) for each in by_name.values() if each.path]
    for each in carried.wanted:
        found = by_name.get(each.name)
        if found is None:
            wanted.append(each)
        elif newer.get(each.name) is not None:
            wanted.append(replace(each, asks=(f"{each.name}>{_public(each.version)}",)))
        else:
            stay.append(_cannot_follow(found, asked=each.name in newer, index=index))
    return replace(carried, wanted=tuple(wanted), cannot_follow=(*carried.cannot_follow, *stay))


def _requires_other(distribution: Distribution, planned: Mapping[str, str]) -> str | None:
    # Requires-Dist: torch==2.14.1
    for requirement in required_by(distribution):
        version = planned.get(canonical(requirement.name))
        if version is not None and not requirement.specifier.contains(version, prereleases=True):
            return f"it requires {requirement.name}{requirement.specifier}"
    return None


def _names_torch(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            parts = (content[:_LOOKED_AT], content[max(_LOOKED_AT, size - _LOOKED_AT) :])
            return any(_LIBRARY.search(part) is not None for part in parts)


def _built_here(bound: Bound, path: str) -> CannotFollow:
    command = f"uv pip install --no-deps --no-build-isolation {path}"
    exists = f"build it again in the new environment with `{command}`"
    return CannotFollow(name=bound.name, version=bound.version, why=bound.why, exists=exists)


def _cannot_follow(bound: Bound, *, asked: bool, index: str) -> CannotFollow:
    exists = (
        f"{index} has nothing newer with a wheel that fits" if asked else "no index was asked for a newer one"
    )
    return CannotFollow(name=bound.name, version=bound.version, why=bound.why, exists=exists)


def _public(version: str) -> str:
    return version.partition("+")[0]
