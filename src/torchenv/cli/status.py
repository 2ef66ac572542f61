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
    from torchenv.render.status import status_document, status_text

    found = status(context.store, context.environ, context.project, context.running)
    if arguments.json:
        context.print_json(status_document(found, context.root))
    else:
        context.out(status_text(found, context.root))
    return 0
