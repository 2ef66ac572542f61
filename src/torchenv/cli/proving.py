"""What `smoke` and `evaluate` take alike: where the profile's commands run, and what must import."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from torchenv.cli.context import Context, read_text
from torchenv.workspace.records import Environment


def add_proving(parser: ArgumentParser) -> None:
    """Declare the options that both commands take."""
    parser.add_argument(
        "--profile", metavar="NAME|FILE", help="whose commands are run; else torchenv.toml's, else `default`"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def working_directory(context: Context) -> Path:
    """Return the directory that the profile's commands are written for: that of its file."""
    if context.profile_path is not None:
        return context.profile_path.parent.resolve()
    return context.project or context.cwd


def must_import(context: Context, environment: Environment) -> tuple[str, ...]:
    """Name the distributions that the profile asks for on this system and in this Python."""
    from packaging.requirements import Requirement

    from torchenv.environment.inspect import canonical
    from torchenv.packages import of_profile

    def read(path: Path) -> str:
        return read_text(path, "the file")

    profile = context.profile
    along = of_profile(
        profile.packages, f"profile {profile.name}", working_directory(context), read, context.catalogue
    )
    asked = [Requirement(each.requirement) for each in (*along.family, *along.requirements)]
    python = environment.python.version
    inside = {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    names = [each.name for each in asked if each.marker is None or each.marker.evaluate(inside)]
    return tuple(dict.fromkeys(map(canonical, (*profile.torch.packages, *names))))
