"""`torchenv remove`: delete environments that nobody needs; their locks stay."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context

FORCE = "though a rollback leads to it, or it could not be built again"


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("environments", nargs="+", metavar="ENV", help="a number, a name or a torch version")
    parser.add_argument("--force", action="store_true", help=FORCE)
    parser.add_argument("--offline", action="store_true", help="do not ask whether it could be built again")


def run(arguments: Namespace, context: Context) -> int:
    """Remove them all, or say why one must stay."""
    from torchenv.actions.remove import remove

    for each in remove(
        arguments.environments,
        context.store,
        context.running,
        context.irreplaceable(force=arguments.force),
        force=arguments.force,
    ):
        context.out(f"removed environment {each}; `torchenv restore {each.number}` builds it again")
    return 0
