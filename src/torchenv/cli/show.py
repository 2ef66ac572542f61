"""`torchenv show`: one environment, with its plan, lock and proofs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("environment", nargs="?", metavar="ENV", help="a number, a name or a torch version")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(arguments: Namespace, context: Context) -> int:
    """Print what is recorded of one environment."""
    from torchenv.render.environment import describe_show, encode_environment

    environment = context.environment(arguments.environment, removed=True)
    if arguments.json:
        context.print_json(encode_environment(environment, context.store))
    else:
        context.out(describe_show(environment, context.store))
    return 0
