"""`torchenv evaluate`: measure the same in two environments, and judge the difference."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context
from torchenv.cli.proving import add_proving, working_directory
from torchenv.errors import InputError
from torchenv.workspace.records import Environment

FOUND_SOMETHING = 1


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("environment", nargs="?", metavar="ENV", help="the new one; else the one in use")
    parser.add_argument(
        "--against", metavar="ENV", help="the old one; else the one in use, or in use before it"
    )
    add_proving(parser)


def run(arguments: Namespace, context: Context) -> int:
    """Run the profile's evaluation in both, and print the metrics side by side."""
    from platform import node

    from torchenv.actions.evaluate import Comparison, evaluate
    from torchenv.render.proofs import describe_evaluation, encode_evaluation

    new = context.environment(arguments.environment)
    comparison = Comparison(
        old=_old(arguments.against, new, context),
        new=new,
        evaluation=context.profile.evaluation,
        directory=working_directory(context),
        environ=context.environ,
        node=node(),
    )
    evaluated = evaluate(comparison, context.ports)
    if arguments.json:
        context.print_json(encode_evaluation(evaluated))
    else:
        context.out(describe_evaluation(evaluated))
    return 0 if evaluated.has_passed else FOUND_SOMETHING


def _old(named: str | None, new: Environment, context: Context) -> Environment:
    manifest = context.store.read()
    old = manifest.find(named) if named else manifest.active
    if named is None and old == new:
        old = manifest.rollback_target(lambda _: True)
    if old is None or old == new:
        hint = "name another one: `torchenv evaluate ENV --against ENV`"
        raise InputError(f"there is nothing to compare environment {new} with", hint=hint)
    return old
