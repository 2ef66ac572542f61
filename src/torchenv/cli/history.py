"""`torchenv history`: every switch, from where to where and why."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--json", action="store_true", help="print the torchenv.history/1 document")


def run(arguments: Namespace, context: Context) -> int:
    """Print what the manifest tells, the oldest first."""
    from torchenv.render.switch import describe_history, encode_history

    manifest = context.store.read()
    if arguments.json:
        context.print_json(encode_history(manifest))
    else:
        context.out(describe_history(manifest) or f"nothing was switched in {context.root} yet")
    return 0
