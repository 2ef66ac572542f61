"""`torchenv create`: build a new environment beside the others."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from torchenv.cli.context import Context
from torchenv.cli.options import add_choice, wish
from torchenv.errors import InputError, NothingSuits
from torchenv.host import Host
from torchenv.plan import Outcome, Plan, Question, Wish, resolve


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    add_choice(parser)
    parser.add_argument("--use", action="store_true", help="switch to the new environment at the end")
    parser.add_argument("--dry-run", action="store_true", help="stop after the decision")
    parser.add_argument("--json", action="store_true", help="print what `torchenv show --json` would")


def run(arguments: Namespace, context: Context) -> int:
    """Gather, decide, apply, report."""
    from torchenv.render.plan import decision_text, refusal_text

    asked = wish(arguments, context.environ, context.profile)
    host = context.host if arguments.dry_run else _host(context)
    plan = _decided(Question(host=host, wish=asked, catalogue=context.catalogue), context)
    context.say(decision_text(plan) if plan.build else refusal_text(plan))
    if arguments.json and (arguments.dry_run or plan.build is None):
        context.print_json(plan.to_document())
    if plan.build is None:
        reasons = "; ".join(plan.why)
        raise NothingSuits(f"nothing was made: {reasons}", hint=plan.hint)
    if arguments.dry_run:
        return 0
    return _make(plan, host, asked, context)


def _host(context: Context) -> Host:
    """Give the machine that is planned for, with the interpreters and environments of the one that builds."""
    if not context.arguments.host:
        return context.host
    described, here = context.host, context.probe()
    if described.platform != here.platform:
        named = context.arguments.host[0]
        raise InputError(
            f"{named} describes {described.platform}, and this machine is {here.platform}",
            hint=f"look at the plan for it with `torchenv plan --host {named}`, and create it there",
        )
    return replace(described, pythons=here.pythons, environments=here.environments)


def _decided(question: Question, context: Context) -> Plan:
    plan = resolve(question)
    if not question.wish.offline and plan.outcome is not Outcome.BLOCKED:
        from torchenv.actions.ask_index import asked_again

        plan = asked_again(plan, question, context.fetch, context.run)
    if plan.build is not None and context.arguments.host:
        # The devices of another machine are not here to compute on.
        return replace(plan, build=replace(plan.build, unproven=True))
    return plan


def _make(plan: Plan, host: Host, asked: Wish, context: Context) -> int:
    from torchenv.actions.create import Order, create
    from torchenv.actions.surroundings import surroundings
    from torchenv.render.environment import made_text, shown

    assert plan.build is not None
    for constraint in context.inherited.forbidding(plan.build.requirements):
        context.say(f"note: ignored, though it forbids what is planned: {constraint}")
    around = surroundings(context.environ, context.project, torch=plan.build.torch)
    told = {each.code for each in plan.warnings}
    for problem in around:
        if problem.code not in told:
            context.say(f"note: {problem.message}")
    order = Order(
        plan=plan,
        host=host,
        profile=context.profile,
        catalogue=context.catalogue,
        by_hand=asked.by_hand,
        package_index=context.package_index,
        ignored=context.inherited.ignored,
        around=around,
    )
    made = create(order, context.ports)
    if context.arguments.json:
        context.say(made_text(made, order))
        context.print_json(shown(made.environment, context.store))
    else:
        context.out(made_text(made, order))
    return 0
