"""`torchenv activate`: print what a shell evaluates in order to be in an environment."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import PurePath

from torchenv.cli.context import Context

HOW = """\
bash, zsh:   eval "$(torchenv activate)"
fish:        torchenv activate --shell fish | source
PowerShell:  torchenv activate --shell powershell | Out-String | Invoke-Expression

`deactivate` leaves it."""


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    from argparse import RawDescriptionHelpFormatter

    from torchenv.actions.activate import SHELLS

    parser.epilog = HOW
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.add_argument("environment", nargs="?", metavar="ENV", help="else the environment in use")
    parser.add_argument("--shell", choices=tuple(SHELLS), help="else the one that SHELL names")


def run(arguments: Namespace, context: Context) -> int:
    """Print the lines; nothing is changed."""
    from torchenv.actions.activate import SHELLS, script
    from torchenv.actions.run import entry

    environment = context.environment(arguments.environment)
    # SHELL=/usr/bin/fish; Windows sets none.
    mine = PurePath(context.environ.get("SHELL", "powershell")).name
    shell = arguments.shell or (mine if mine in SHELLS else "bash")
    context.out(script(entry(environment, context.store, context.environ), shell))
    return 0
