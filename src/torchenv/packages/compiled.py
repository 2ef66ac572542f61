"""Packages that were made for one torch: by what they require, and by what their machine code names."""

from __future__ import annotations

import mmap
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from torchenv.environment.inspect import Distribution, canonical
from torchenv.packages.installed import list_required, local_path
from torchenv.packages.values import CannotFollow, CarriedPackages
from torchenv.system.values import frozen

_TORCH = ("torch", "torch_python", "torch_cpu", "torch_cuda", "torch_hip", "torch_xpu")
_LIBRARIES = (*_TORCH, "c10", "c10_cuda", "c10_hip", "c10_xpu")

# A file names what it needs as libtorch_cpu.so on Linux, @rpath/libtorch_cpu.dylib on macOS (where modules
# end in .so too) and torch_cpu.dll on Windows, each ended by a zero.
_UNIX = tuple(f"lib{item}.{suffix}\0".encode() for item in _LIBRARIES for suffix in ("so", "dylib"))
_WINDOWS = tuple(f"{item}.dll\0".encode() for item in _LIBRARIES)
_NAMES = {".so": _UNIX, ".dylib": _UNIX, ".pyd": _WINDOWS, ".dll": _WINDOWS}

# The names of needed libraries stand near the start of a file as linkers write it, and at its end where a
# wheel was repaired afterwards. What lies between is code of up to gigabytes.
_LOOKED_AT = 8 << 20


@frozen(kw_only=True)
class Bound:
    """A package that was made for another torch than is planned, and how that is known.

    `path` is where on this machine it was built, for one of the user's own.
    """

    name: str
    version: str
    why: str
    path: str | None = None


def find_bound_to_torch(
    distributions: Iterable[Distribution], torch: str | None, planned: Mapping[str, str]
) -> tuple[Bound, ...]:
    """Find the packages that refuse the planned family, and those with machine code for another torch.

    `torch` is the one beside them, `planned` the version of each planned package by its name. Patches of one
    line share their machine interface. That code is for torch is known by a search for the names of torch's
    libraries in the first and last 8 MiB of a file, not by reading what its tables say.
    """
    same_line = torch is not None and Version(torch).release[:2] == Version(planned["torch"]).release[:2]
    found = []
    for distribution in distributions:
        name = canonical(distribution.name)
        if name in planned:
            continue
        why = _requires_other(distribution, planned)
        if why is None and not same_line and (library := links_torch(distribution)) is not None:
            why = f"{library.name} was compiled against torch {torch or 'of that environment'}"
        if why is not None:
            local = local_path(distribution)
            found.append(
                Bound(name=name, version=distribution.version, why=why, path=local[0] if local else None)
            )
    return tuple(found)


def links_torch(distribution: Distribution) -> Path | None:
    """Return the first file with machine code that names a library of torch's, None where there is none."""
    for line in distribution.record():
        path = Path(line.path)
        if path.suffix in _NAMES and os.path.isfile(path) and _names_torch(path):
            return path
    return None


def following(
    carried: CarriedPackages, bound: Sequence[Bound], newer: Mapping[str, str | None], index: str
) -> CarriedPackages:
    """Ask for what is newer in place of what is bound to another torch, and list what cannot follow.

    `newer` has the newest version on the index with a wheel that fits, for each name that was asked about.
    What only another package requires is listed too, and stays that one's business.
    """
    held = {item.name: item for item in bound if newer.get(item.name) is None}
    renewed = {item.name for item in bound} - held.keys()
    wanted = tuple(
        replace(item, asks=(f"{item.name}>{_public(item.version)}",)) if item.name in renewed else item
        for item in carried.wanted
        if item.name not in held
    )
    listed = (_cannot_follow(item, asked=item.name in newer, index=index) for item in held.values())
    return replace(carried, wanted=wanted, cannot_follow=(*carried.cannot_follow, *listed))


def _requires_other(distribution: Distribution, planned: Mapping[str, str]) -> str | None:
    # Requires-Dist: torch==2.14.1
    for requirement in list_required(distribution):
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
            # Two searches for what most files have nothing of cost a tenth of twenty.
            likely = (part for part in parts if b"torch" in part or b"c10" in part)
            return any(name in part for part in likely for name in _NAMES[path.suffix])


def _cannot_follow(bound: Bound, *, asked: bool, index: str) -> CannotFollow:
    if bound.path is not None:
        command = f"uv pip install --no-deps --no-build-isolation {shlex.quote(bound.path)}"
        exists = f"build it again in the new environment with `{command}`"
    elif asked:
        exists = f"{index} has nothing newer with a wheel that fits"
    else:
        exists = "no index was asked for a newer one"
    return CannotFollow(name=bound.name, version=bound.version, why=bound.why, exists=exists)


def _public(version: str) -> str:
    return version.partition("+")[0]
