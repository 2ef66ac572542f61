"""`torchenv adopt`: record an environment made elsewhere; it is only read."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("path", metavar="PATH", help="the directory of a venv or a conda environment")


def run(arguments: Namespace, context: Context) -> int:
    """Record it and print its number."""
    from torchenv.actions.adopt import adopt

    environment = adopt(context.cwd / arguments.path, context.catalogue, context.ports)
    context.say(f"{environment.path} is recorded as environment {environment}; it is only read")
    context.out(str(environment.number))
    return 0
