"""`torchenv status`: where one stands, in one look."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--json", action="store_true", help="print the torchenv.status/1 document")


def run(arguments: Namespace, context: Context) -> int:
    """Look and tell; nothing is changed."""
    from torchenv.actions.status import status
    from torchenv.cli.rescan import rescan_checkpoints
    from torchenv.render.status import describe_status, encode_status

    runs = rescan_checkpoints(context, record=False).runs
    found = status(context.store, context.environ, context.project, context.running, runs)
    if arguments.json:
        context.print_json(encode_status(found, context.root))
    else:
        context.out(describe_status(found, context.root))
    return 0
