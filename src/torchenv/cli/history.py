"""`torchenv history`: every switch, from where to where and why."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--json", action="store_true", help="print the torchenv.history/1 document")


def run(arguments: Namespace, context: Context) -> int:
    """Print what the manifest tells, the oldest first."""
    from torchenv.render.switch import history_document, history_text

    manifest = context.store.read()
    if arguments.json:
        context.print_json(history_document(manifest))
    else:
        context.out(history_text(manifest) or f"nothing was switched in {context.root} yet")
    return 0
