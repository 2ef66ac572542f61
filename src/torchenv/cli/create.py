"""`torchenv create`: build a new environment beside the others."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from torchenv.cli.carrying import add_carrying, collect_packages, like
from torchenv.cli.context import Context
from torchenv.cli.options import add_choice, wish
from torchenv.errors import InputError, NothingSuits
from torchenv.plan import Build, Outcome, Plan, Question, Wish, resolve

if TYPE_CHECKING:
    from torchenv.environment.inspect import Installation
    from torchenv.host.model import Host
    from torchenv.packages import CarriedPackages
    from torchenv.workspace.records import Environment


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    add_choice(parser)
    add_carrying(parser)
    parser.add_argument("--use", action="store_true", help="switch to the new environment at the end")
    parser.add_argument("--dry-run", action="store_true", help="stop after the decision")
    parser.add_argument("--json", action="store_true", help="print what `torchenv show --json` would")


def run(arguments: Namespace, context: Context) -> int:
    """Gather, decide, apply, report."""
    from torchenv.render.plan import describe_advice, describe_decision, describe_refusal

    host = context.host if arguments.dry_run else _host(context)
    model = like(context)
    along = collect_packages(context, model)
    question = Question(
        host=host, wish=_wish(context, along, host), catalogue=context.catalogue, known=context.gather_known()
    )
    plan = context.add_warnings(_decide(question, context))
    context.say(describe_decision(plan) if plan.build else describe_refusal(plan))
    if context.profile.checkpoints.distributed and plan.build is not None:
        context.say(describe_advice(plan))
    if arguments.json and (arguments.dry_run or plan.build is None):
        context.print_json(plan.to_document())
    if plan.build is None:
        raise NothingSuits(f"nothing was made: {'; '.join(plan.why)}", hint=plan.hint)
    along = _fit_packages(along, model, plan.build, context)
    return 0 if arguments.dry_run else _make(plan, question, along, context)


def _host(context: Context) -> Host:
    """Return the machine that is planned for, with the interpreters of the one that builds."""
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


def _wish(context: Context, along: CarriedPackages, host: Host) -> Wish:
    """Ask the plan for the companions, too, that what goes along names."""
    from torchenv.packages import companions

    asked = wish(context.arguments, context.environ, context.profile)
    more = companions(along, host.platform)
    return replace(asked, packages=tuple(dict.fromkeys((*asked.packages, *more))))


def _decide(question: Question, context: Context) -> Plan:
    plan = resolve(question)
    if not question.wish.offline and plan.outcome is not Outcome.BLOCKED:
        from torchenv.actions.ask_index import replan_with_index

        query = context.query_indexes(is_plan=context.arguments.dry_run)
        plan = replan_with_index(plan, question, query)
        context.remember(query)
    if plan.build is not None and context.arguments.host:
        # The devices of another machine are not here to compute on.
        return replace(plan, build=replace(plan.build, unproven=True))
    return plan


def _fit_packages(
    along: CarriedPackages, model: Installation | None, build: Build, context: Context
) -> CarriedPackages:
    """Describe before anything is built what cannot go along, and refuse what contradicts the plan."""
    from torchenv.actions.carry import list_bound_to_old_torch
    from torchenv.packages import refuse_conflicts

    platform = context.host.platform
    refuse_conflicts(along, build.requirements, platform=platform, python=build.python.minor)
    if model is not None:
        from torchenv.installers.uv import default_index, uv_program

        asked = context.package_index or default_index(context.run, uv_program())
        index = None if context.arguments.offline else asked
        along = list_bound_to_old_torch(
            along, model, build, platform=platform, index=index, fetch=context.fetch
        )
    for each in (*(note.message for note in along.notes), *map(str, along.cannot_follow)):
        context.say(f"note: {each}")
    return along


def _make(plan: Plan, question: Question, along: CarriedPackages, context: Context) -> int:
    from torchenv.actions.create import CreateOrder, create
    from torchenv.actions.surroundings import surroundings
    from torchenv.render.environment import describe_made, encode_environment

    assert plan.build is not None
    for constraint in context.other_settings.forbidding(plan.build.requirements):
        context.say(f"note: ignored, though it forbids what is planned: {constraint}")
    around = surroundings(context.environ, context.project, torch=plan.build.torch)
    told = {each.code for each in plan.warnings}
    for problem in around:
        if problem.code not in told:
            context.say(f"note: {problem.message}")
    order = CreateOrder(
        plan=plan,
        host=question.host,
        profile=context.profile,
        catalogue=context.catalogue,
        carried=along,
        companions=question.wish.packages,
        by_hand=question.wish.by_hand,
        package_index=context.package_index,
        ignored=context.other_settings.ignored,
        around=around,
    )
    made = create(order, context.ports)
    if context.arguments.json:
        context.say(describe_made(made, order, program=context.program))
        context.print_json(encode_environment(made.environment, context.store))
    else:
        context.out(describe_made(made, order, program=context.program))
    if context.arguments.use:
        _use(made.environment, context)
    return 0


def _use(environment: Environment, context: Context) -> None:
    from torchenv.actions.switch import use
    from torchenv.render.switch import describe_switch

    proof = context.profile.smoke.required
    switched = use(str(environment.number), context.store, context.outside, why="create", proof=proof)
    # With --json the document on stdout is what was made.
    (context.say if context.arguments.json else context.out)(
        describe_switch(switched, program=context.program)
    )
