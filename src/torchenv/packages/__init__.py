"""Everything else that the user runs: packages carried from an environment, a file or a profile.

The order of a run: `of_environment`, `of_file` and `of_profile` put `together`; `companions` for the plan;
`refuse_conflicts` once there is one; `bound_to_torch` and `following` for what was made for the old torch.
"""

from __future__ import annotations

import re
from pathlib import Path

from torchenv.catalogue import Catalogue
from torchenv.errors import InputError
from torchenv.packages.compiled import Bound, find_bound_to_torch, following
from torchenv.packages.documents import of_lock, of_project
from torchenv.packages.family import companions, refuse_conflicts, sort_out
from torchenv.packages.installed import of_environment
from torchenv.packages.requirements_file import ReadText, read_requirements_file
from torchenv.packages.values import (
    CannotFollow,
    CarriedPackages,
    CarriedRequirement,
    PackageNote,
    Wanted,
    together,
)
from torchenv.profile.model import Packages
from torchenv.system.documents import Table

__all__ = [
    "Bound",
    "CannotFollow",
    "CarriedPackages",
    "CarriedRequirement",
    "PackageNote",
    "Wanted",
    "companions",
    "find_bound_to_torch",
    "following",
    "of_environment",
    "of_file",
    "of_profile",
    "refuse_conflicts",
    "together",
]


def of_file(name: str, directory: Path, read: ReadText, catalogue: Catalogue) -> CarriedPackages:
    """Read a requirements file, a pyproject.toml or a PEP 751 lock, named from `directory`.

    `pyproject.toml[test,docs]` takes extras or dependency groups along. Raises `InputError`.
    """
    match = re.fullmatch(r"(.+?\.toml)\[([\w\-., ]+)\]", name)
    file, extras = (match[1], re.findall(r"[\w\-.]+", match[2])) if match else (name, [])
    path = directory / file
    if path.suffix in {".yml", ".yaml"}:
        hint = "list its packages in a requirements file, or carry the environment itself: `--like ENV`"
        raise InputError(f"{path}: a conda environment file is not read", hint=hint)
    if path.suffix != ".toml":
        found = read_requirements_file(path, read)
        return sort_out(catalogue, found.requirements, found.constraints, found.notes)
    table = Table.from_toml(read(path), file)
    if "lock-version" in table:
        return of_lock(table, catalogue)
    asked, notes = of_project(table, extras)
    return sort_out(catalogue, asked, notes=notes)


def of_profile(
    packages: Packages, source: str, directory: Path, read: ReadText, catalogue: Catalogue
) -> CarriedPackages:
    """Take what `[packages]` of a profile asks for; `directory` is that of the profile's file."""
    own = sort_out(
        catalogue,
        [CarriedRequirement(each, source) for each in packages.requirements],
        [CarriedRequirement(each, source) for each in packages.constraints],
    )
    return together(own, *(of_file(each, directory, read, catalogue) for each in packages.files))
