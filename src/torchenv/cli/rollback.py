"""`torchenv rollback`: back to the environment that was in use before, at once and without a network."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchenv.cli.context import Context

if TYPE_CHECKING:
    from torchenv.actions.switch import Switched


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("environment", nargs="?", metavar="ENV", help="else the one in use before this one")
    parser.add_argument("--ask", action="store_true", help="ask before switching")
    parser.add_argument(
        "--with-checkpoints", action="store_true", help="then copy the newest of every run so that it is read"
    )
    parser.add_argument("--json", action="store_true", help="print the torchenv.switch/1 document")


def run(arguments: Namespace, context: Context) -> int:
    """Describe what cannot be read there, switch back, and tell what that means."""
    from torchenv.actions.switch import rollback, way_back
    from torchenv.checkpoints.lifeboats import describe_run
    from torchenv.cli.rescan import rescan_checkpoints

    named = arguments.environment
    seen = rescan_checkpoints(context)
    # What is done at once needs no advice.
    advice = not arguments.with_checkpoints
    if arguments.ask:
        manifest = context.store.read()
        target, said = way_back(manifest, named, context.store)
        for line in said:
            context.say(line)
        for run in manifest.runs:
            for line in describe_run(run, target, advice=advice):
                context.say(line)
        if not context.ask_yes_no(f"switch back to environment {target} ({target.path})?"):
            context.say("nothing was switched")
            return 0
        named = str(target.number)
    switched = rollback(named, context.store, context.outside, advice=advice)
    if not seen.roots:
        context.say("note: no checkpoints known; name where they are: `torchenv checkpoints scan DIR`")
    if arguments.with_checkpoints:
        return _with_checkpoints(switched, context)
    show_switch(switched, context)
    return 0


def show_switch(switched: Switched, context: Context, copied: Mapping[str, Any] | None = None) -> None:
    """Print a move of the pointer; `copied` is what the document says besides."""
    from torchenv.render.switch import describe_switch, encode_switch

    if context.arguments.json:
        # Only the document names every checkpoint, which takes the whole index.
        from torchenv.actions.run_readability import judge_runs

        document = encode_switch(switched, judge_runs(switched, context.store, context.system))
        context.print_json({**document, **(copied or {})})
    else:
        context.out(describe_switch(switched, program=context.program))


def _with_checkpoints(switched: Switched, context: Context) -> int:
    from torchenv.actions.run_readability import copy_newest_saves
    from torchenv.errors import NothingSuits
    from torchenv.render.checkpoints import describe_copied, encode_copied

    copies, refused = copy_newest_saves(
        switched,
        context.store,
        system=context.system,
        progress=context.progress("copying"),
        say=context.say,
    )
    document = encode_copied(copies, refused)
    show_switch(switched, context, {"copies": document["copies"], "refused": document["refused"]})
    if not context.arguments.json:
        context.out(describe_copied(copies, refused))
    return NothingSuits.exit_code if refused else 0
