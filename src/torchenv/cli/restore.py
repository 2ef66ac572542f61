"""`torchenv restore`: build a removed environment again from its lock."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context
from torchenv.profile.model import INSTALLERS


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("environment", metavar="ENV", help="a number, a name or a torch version")
    parser.add_argument("--offline", action="store_true", help="use no network")
    parser.add_argument("--installer", choices=INSTALLERS, help="what installs the packages")
    parser.add_argument("--profile", metavar="NAME|FILE", help="whose `[install]` counts")


def run(arguments: Namespace, context: Context) -> int:
    """Build it, and print its new number."""
    from torchenv.actions.restore import restore

    head = None if arguments.offline else context.head
    restored = restore(arguments.environment, context.ports, head)
    context.say(f"{arguments.environment} was built again as environment {restored}: {restored.path}")
    context.out(str(restored.number))
    return 0
