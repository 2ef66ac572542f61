"""`torchenv use`: put an environment in use."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("environment", metavar="ENV", help="a number, a name or a torch version")
    parser.add_argument("--force", action="store_true", help="though it has not passed its smoke commands")
    parser.add_argument("--profile", metavar="NAME|FILE", help="whose `[smoke] required` counts")
    parser.add_argument("--json", action="store_true", help="print the torchenv.switch/1 document")


def run(arguments: Namespace, context: Context) -> int:
    """Switch, and tell what that means."""
    from torchenv.actions.switch import use
    from torchenv.cli.rescan import rescan_checkpoints
    from torchenv.cli.rollback import show_switch

    proof = context.profile.smoke.required
    rescan_checkpoints(context)
    switched = use(arguments.environment, context.store, context.outside, force=arguments.force, proof=proof)
    context.warn_of_surroundings(switched.now.torch)
    show_switch(switched, context)
    return 0
