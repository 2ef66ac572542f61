"""`activate`, `kernel`: an environment in a shell and in Jupyter."""

from __future__ import annotations

from argparse import RawDescriptionHelpFormatter
from pathlib import PurePath
from typing import NamedTuple

from torchenv.cli.gather import find_environment
from torchenv.cli.options import add_environment
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.session import Session

HOW = """\
bash, zsh:   eval "$(torchenv activate)"
fish:        torchenv activate --shell fish | source
PowerShell:  torchenv activate --shell powershell | Out-String | Invoke-Expression

Leave it with `deactivate`."""


class ActivateFlags(NamedTuple):
    """What `activate` takes."""

    environment: str | None
    shell: str | None


def declare_activate(parser: Parser) -> None:
    """Declare what `activate` takes."""
    from torchenv.actions.activate import SHELLS

    parser.epilog = HOW
    parser.formatter_class = RawDescriptionHelpFormatter
    add_environment(parser)
    parser.add_argument("--shell", choices=tuple(SHELLS), help="Shell to print for (default: from SHELL)")


def activate(flags: ActivateFlags, session: Session) -> int:
    """Print the lines; nothing is changed."""
    from torchenv.actions.activate import SHELLS, script
    from torchenv.actions.run import entry

    environ = session.settings.environ
    environment = find_environment(flags.environment, session)
    # SHELL=/usr/bin/fish; Windows sets none.
    mine = PurePath(environ.get("SHELL", "powershell")).name
    shell = flags.shell or (mine if mine in SHELLS else "bash")
    session.output.print(script(entry(environment, session.store, environ), shell))
    return 0


class KernelFlags(NamedTuple):
    """What `kernel` takes."""

    what: str
    environment: str | None


def declare_kernel(parser: Parser) -> None:
    """Declare what `kernel` takes."""
    parser.add_argument(
        "what", metavar="{install,remove}", choices=("install", "remove"), help="Write or delete the kernel"
    )
    add_environment(parser)


def kernel(flags: KernelFlags, session: Session) -> int:
    """Write or delete the kernel, and print its name."""
    from torchenv.actions.kernel import install_kernel, jupyter_data, remove_kernel
    from torchenv.system.disk import Disk

    settings, removing = session.settings, flags.what == "remove"
    environment = find_environment(flags.environment, session, removed=removing)
    data = jupyter_data(settings.environ, settings.home or settings.cwd, settings.system)
    if removing:
        found = remove_kernel(environment, data, Disk())
        session.output.say("kernel removed; environment unchanged")
    else:
        found = install_kernel(environment, session.store, data, Disk())
        session.output.say(f"installed environment {environment} as a kernel: {found.directory}")
    session.output.print(found.name)
    return 0


COMMANDS = {
    "activate": CommandSpec(declare_activate, reader(ActivateFlags), activate),
    "kernel": CommandSpec(declare_kernel, reader(KernelFlags), kernel),
}
