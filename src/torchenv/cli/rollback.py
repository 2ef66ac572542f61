"""`torchenv rollback`: back to the environment that was in use before, at once and without a network."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("environment", nargs="?", metavar="ENV", help="else the one in use before this one")
    parser.add_argument("--ask", action="store_true", help="ask before switching")
    parser.add_argument("--json", action="store_true", help="print the torchenv.switch/1 document")


def run(arguments: Namespace, context: Context) -> int:
    """Switch back, and tell what that means."""
    from torchenv.actions.switch import rollback, way_back
    from torchenv.render.switch import switch_document, switch_text

    named = arguments.environment
    if arguments.ask:
        target, _ = way_back(context.store.read(), named, context.store)
        if not context.agreed(f"switch back to environment {target} ({target.path})?"):
            context.say("nothing was switched")
            return 0
        named = str(target.number)
    switched = rollback(named, context.store, context.outside)
    if arguments.json:
        context.print_json(switch_document(switched))
    else:
        context.out(switch_text(switched))
    return 0
