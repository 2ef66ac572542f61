"""The options that say what goes along beside torch, and what they make with a profile."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchenv.cli.context import Context, read_text

if TYPE_CHECKING:
    from torchenv.environment.inspect import Installation
    from torchenv.packages import CarriedPackages


def add_carrying(parser: ArgumentParser) -> None:
    """Declare `--like` and `--from`."""
    group = parser.add_argument_group("what goes along")
    group.add_argument(
        "--like", metavar="ENV", help="the packages of this environment, or of the one at a path"
    )
    group.add_argument(
        "--from",
        dest="files",
        metavar="FILE",
        action="append",
        help="the packages that a requirements file, a pyproject.toml or a lock lists",
    )


def like(context: Context) -> Installation | None:
    """Look at the environment that `--like` names: one on disk, else one of the workspace."""
    from torchenv.actions.run import directory_of
    from torchenv.environment.inspect import describe

    named = context.arguments.like
    if named is None:
        return None
    path = context.cwd / named
    if path.is_dir() or "/" in named:
        return describe(path)
    return describe(directory_of(context.environment(named), context.store))


def collect_packages(context: Context, installation: Installation | None) -> CarriedPackages:
    """Put together what the profile, `--like` and `--from` ask for; raises `InputError`."""
    from torchenv.environment.inspect import distributions
    from torchenv.packages import of_environment, of_file, of_profile, together

    def read(path: Path) -> str:
        return read_text(path, "the file")

    catalogue, profile, path = context.catalogue, context.profile, context.profile_path
    directory = path.parent if path else context.cwd
    parts = [of_profile(profile.packages, f"profile {profile.name}", directory, read, catalogue)]
    parts += [of_file(each, context.cwd, read, catalogue) for each in context.arguments.files or ()]
    bases = [directory, *(context.cwd for _ in context.arguments.files or ())]
    parts = [_anchor(part, base) for part, base in zip(parts, bases, strict=True)]
    if installation is not None:
        parts.append(of_environment(distributions(installation), str(installation.path), catalogue))
    return together(*parts)


def _anchor(carried: CarriedPackages, base: Path) -> CarriedPackages:
    """Name the folders of a part by their absolute paths, since each part has a base of its own."""
    local = tuple(replace(folder, path=str((base / folder.path).resolve())) for folder in carried.local)
    return replace(carried, local=local)
