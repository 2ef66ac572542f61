"""`torchenv create`: build a new environment beside the others."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from torchenv.cli.carrying import add_carrying, carried, like
from torchenv.cli.context import Context
from torchenv.cli.options import add_choice, wish
from torchenv.errors import NothingSuits
from torchenv.plan import Build, Outcome, Plan, Question, Wish, resolve

if TYPE_CHECKING:
    from torchenv.environments import Installation
    from torchenv.packages import Carried


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    add_choice(parser)
    add_carrying(parser)
    parser.add_argument("--use", action="store_true", help="switch to the new environment at the end")
    parser.add_argument("--dry-run", action="store_true", help="stop after the decision")
    parser.add_argument("--json", action="store_true", help="print what `torchenv show --json` would")


def run(arguments: Namespace, context: Context) -> int:
    """Gather, decide, apply, report."""
    from torchenv.render.plan import decision_text

    model = like(context)
    along = carried(context, model)
    asked = _wish(context, along)
    plan = _decided(asked, context)
    context.say(decision_text(plan))
    if plan.build is None:
        raise NothingSuits(f"nothing was made: {'; '.join(plan.why)}", hint=plan.hint)
    along = _fitted(along, model, plan.build, context)
    if arguments.dry_run:
        if arguments.json:
            context.print_json(plan.to_document())
        return 0
    return _make(plan, asked, along, context)


def _wish(context: Context, along: Carried) -> Wish:
    """Ask the plan for the companions, too, that what goes along names."""
    from torchenv.packages import companions

    asked = wish(context.arguments, context.environ, context.profile)
    more = companions(along, context.host.platform)
    return replace(asked, packages=tuple(dict.fromkeys((*asked.packages, *more))))


def _decided(asked: Wish, context: Context) -> Plan:
    question = Question(host=context.host, wish=asked, catalogue=context.catalogue)
    plan = resolve(question)
    if asked.offline or plan.outcome is Outcome.BLOCKED:
        return plan
    from torchenv.actions.ask_index import asked_again

    return asked_again(plan, question, context.fetch, context.run)


def _fitted(along: Carried, model: Installation | None, build: Build, context: Context) -> Carried:
    """Say before anything is built what cannot go along, and refuse what contradicts the plan."""
    from torchenv.actions.carry import bound_to_old_torch
    from torchenv.packages import refuse_conflicts

    platform = context.host.platform
    refuse_conflicts(along, build.requirements, platform=platform, python=build.python.minor)
    if model is not None:
        index = None if context.arguments.offline else context.package_index
        along = bound_to_old_torch(along, model, build, platform=platform, index=index, fetch=context.fetch)
    for each in (*(note.message for note in along.notes), *map(str, along.cannot_follow)):
        context.say(f"note: {each}")
    for constraint in context.inherited.forbidding(build.requirements):
        context.say(f"note: ignored, though it forbids what is planned: {constraint}")
    return along


def _make(plan: Plan, asked: Wish, along: Carried, context: Context) -> int:
    from torchenv.actions.create import Order, create
    from torchenv.render.environment import made_text, shown

    order = Order(
        plan=plan,
        host=context.host,
        profile=context.profile,
        catalogue=context.catalogue,
        carried=along,
        companions=asked.packages,
        by_hand=asked.by_hand,
        package_index=context.package_index,
        ignored=context.inherited.ignored,
    )
    made = create(order, context.ports)
    if context.arguments.json:
        context.print_json(shown(made.environment, context.store))
    else:
        context.out(made_text(made, order))
    return 0
