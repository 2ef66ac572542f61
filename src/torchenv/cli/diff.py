"""`torchenv diff`: what differs between two environments."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("before", metavar="ENV", help="a number, a name or a torch version")
    parser.add_argument("after", metavar="ENV", help="the one to compare with it")
    parser.add_argument("--json", action="store_true", help="print the torchenv.diff/1 document")


def run(arguments: Namespace, context: Context) -> int:
    """Compare packages, backend and interpreter."""
    from torchenv.actions.diff import diff
    from torchenv.render.status import describe_diff, encode_diff

    before = context.environment(arguments.before, removed=True)
    after = context.environment(arguments.after, removed=True)
    differences = diff(before, after, context.store)
    if arguments.json:
        context.print_json(encode_diff(before, after, differences))
    else:
        context.out(describe_diff(differences) or f"environments {before} and {after} hold the same")
    return 0
