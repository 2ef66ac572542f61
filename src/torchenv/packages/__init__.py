"""Everything else that the user runs: packages carried from an environment, a file or a profile.

The order of a run: `of_environment`, `of_file` and `of_profile` put `together`; `companions` for the plan;
`refuse_conflicts` once there is one; `bound_to_torch` and `following` for what was made for the old torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from torchenv.catalogue.releases import Catalogue
from torchenv.errors import InputError
from torchenv.packages.compiled import Bound, find_bound_to_torch, following
from torchenv.packages.documents import of_lock, of_project
from torchenv.packages.family import companions, refuse_conflicts, sort_out
from torchenv.packages.installed import of_environment
from torchenv.packages.requirements_file import ReadText, make_folder, note_by_hand, read_requirements_file
from torchenv.packages.values import (
    CannotFollow,
    CarriedPackages,
    CarriedRequirement,
    LocalPackage,
    PackageListing,
    PackageNote,
    Wanted,
    list_lines,
    together,
)
from torchenv.profile.model import Packages
from torchenv.system.documents import Table

__all__ = [
    "Bound",
    "CannotFollow",
    "CarriedPackages",
    "CarriedRequirement",
    "LocalPackage",
    "PackageNote",
    "Wanted",
    "companions",
    "find_bound_to_torch",
    "following",
    "list_lines",
    "of_environment",
    "of_file",
    "of_profile",
    "refuse_conflicts",
    "together",
]


def of_file(
    name: str, directory: Path, read: ReadText, catalogue: Catalogue, *, private: Sequence[str] = ()
) -> CarriedPackages:
    """Read a requirements file, a pyproject.toml or a PEP 751 lock, named from `directory`.

    `pyproject.toml[test,docs]` takes extras or dependency groups along; `private` are the names that the
    profile binds to an index of its own. Raises `InputError`.
    """
    match = re.fullmatch(r"(.+?\.toml)\[([\w\-., ]+)\]", name)
    file, extras = (match[1], re.findall(r"[\w\-.]+", match[2])) if match else (name, [])
    path = directory / file
    if path.suffix in {".yml", ".yaml"}:
        hint = f"run `torchenv init --from {file}`, or carry the environment itself with `--like ENV`"
        raise InputError(f"{path}: a conda environment file is not supported", hint=hint)
    if path.suffix != ".toml":
        found = read_requirements_file(path, read)
    else:
        table = Table.from_toml(read(path), file)
        if "lock-version" in table:
            return of_lock(table, catalogue)
        if path.name == "pixi.toml":
            hint = f"run `torchenv init --from {file}` to write what it asks for into torchenv.toml"
            raise InputError(f"{path}: a pixi workspace is not supported", hint=hint)
        found = of_project(table, extras, path.parent, read, private=private)
    return sort_out(catalogue, _enter_folders(found, directory, read, private))


def of_profile(
    packages: Packages,
    source: str,
    directory: Path,
    read: ReadText,
    catalogue: Catalogue,
    *,
    private: Sequence[str] = (),
) -> CarriedPackages:
    """Return what `[packages]` of a profile asks for; `directory` is that of the profile's file."""
    own = PackageListing(
        requirements=[CarriedRequirement(line, source) for line in packages.requirements],
        constraints=[CarriedRequirement(line, source) for line in packages.constraints],
        folders=[
            make_folder(directory, line, f"{source}: editable {line}", editable=True)
            for line in packages.editable
        ],
    )
    return together(
        sort_out(catalogue, _enter_folders(own, directory, read, private)),
        *(of_file(name, directory, read, catalogue, private=private) for name in packages.files),
    )


def _enter_folders(
    found: PackageListing, directory: Path, read: ReadText, private: Sequence[str]
) -> PackageListing:
    """Ask for what the folders of a listing depend on, each once, and keep the folders as local packages."""
    entered: set[str] = set()
    while found.folders:
        folder = found.folders.pop(0)
        path = Path(os.path.normpath(folder.path))
        shown = os.path.relpath(path, directory).replace(os.sep, "/")
        if shown in entered:
            continue
        entered.add(shown)
        source = f"{shown}/pyproject.toml" if shown != "." else "pyproject.toml"
        try:
            table = Table.from_toml(read(path / "pyproject.toml"), source)
        except InputError as error:
            if folder.name is None:
                what = f"-e {shown}" if folder.editable else shown
                found.notes.append(note_by_hand(what, folder.source))
                continue
            raise InputError(
                f"{folder.source}: {folder.name} is a folder that cannot be read: {error.message}",
                hint="name a folder with a pyproject.toml, or a package of an index",
            ) from None
        name = canonicalize_name(table.table("project").get("name", str, folder.name or ""))
        if not name or (folder.name and canonicalize_name(folder.name) != name):
            raise InputError(f"{folder.source}: {source} names another package", hint="check its path")
        found.local.append(
            LocalPackage(name=name, path=shown, editable=folder.editable, source=folder.source)
        )
        inside = of_project(table, folder.extras, path, read, private=private)
        inside.of_folders += inside.requirements
        inside.requirements = []
        found.extend(inside)
    # A member that another one asks for is there as a folder already.
    local = {folder.name for folder in found.local}
    for listed in (found.requirements, found.of_folders):
        listed[:] = [
            asked for asked in listed if canonicalize_name(Requirement(asked.requirement).name) not in local
        ]
    return found
