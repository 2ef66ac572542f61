"""The options that several commands share, each declared once."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser
from typing import TYPE_CHECKING

from torchenv.profile.model import INSTALLERS


def add_carrying(parser: ArgumentParser) -> None:
    """Declare `--like` and `--from`."""
    group = parser.add_argument_group("packages to carry over")
    group.add_argument("--like", metavar="ENV", help="Those of this environment, or of the one at a path")
    group.add_argument(
        "--from",
        dest="files",
        metavar="FILE",
        action="append",
        default=[],
        help="Those of a requirements file, a pyproject.toml or a lock file",
    )


def add_environment(parser: ArgumentParser, *, required: bool = False) -> None:
    """Declare the environment that a command is about."""
    says = "Number, name or torch version"
    if required:
        parser.add_argument("environment", metavar="ENV", help=says)
    else:
        parser.add_argument(
            "environment", nargs="?", metavar="ENV", help=f"{says} (default: the active environment)"
        )


def add_profile(parser: _Options, says: str) -> None:
    """Declare `--profile`."""
    parser.add_argument("--profile", metavar="NAME|FILE", help=says)


def add_offline(parser: _Options, says: str = "Use no network") -> None:
    """Declare `--offline`."""
    parser.add_argument("--offline", action="store_true", help=says)


def add_only_wheels(parser: _Options) -> None:
    """Declare `--only-wheels`."""
    parser.add_argument(
        "--only-wheels", action="store_true", help="Use wheels only; build nothing from source"
    )


def add_installer(parser: _Options) -> None:
    """Declare `--installer`."""
    parser.add_argument("--installer", choices=INSTALLERS, help="Installer to use (default: uv)")


def add_catalogue(parser: _Options) -> None:
    """Declare `--catalogue`."""
    parser.add_argument(
        "--catalogue", metavar="FILE", help="Catalogue of your own, laid over the packaged one"
    )


def add_hosts(parser: _Options, says: str) -> None:
    """Declare `--host` for several files, as a shell's pattern gives them."""
    parser.add_argument("--host", metavar="FILE", nargs="+", action="extend", default=[], help=says)


def add_json(parser: _Options, says: str = "Print the result as JSON") -> None:
    """Declare `--json`."""
    parser.add_argument("--json", action="store_true", help=says)


def add_general(parser: _Options, *, again: bool = False) -> None:
    """Declare what every command takes; `again` is for what comes after a second word of a command."""
    parser.add_argument(
        "--root",
        metavar="DIR",
        default=SUPPRESS if again else None,
        help="Workspace to use (default: the project's .torchenv)",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        default=SUPPRESS if again else False,
        help="Print nothing but results and errors",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        default=SUPPRESS if again else False,
        help="Print the programs that run",
    )


if TYPE_CHECKING:
    from argparse import _ActionsContainer as _Options
