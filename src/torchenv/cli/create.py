"""`torchenv create`: build a new environment beside the others."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context
from torchenv.cli.options import add_choice, wish
from torchenv.errors import NothingSuits
from torchenv.plan import Outcome, Plan, Question, Wish, resolve
from torchenv.record import Environment


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    add_choice(parser)
    parser.add_argument("--use", action="store_true", help="switch to the new environment at the end")
    parser.add_argument("--dry-run", action="store_true", help="stop after the decision")
    parser.add_argument("--json", action="store_true", help="print what `torchenv show --json` would")


def run(arguments: Namespace, context: Context) -> int:
    """Gather, decide, apply, report."""
    from torchenv.render.plan import decision_text

    asked = wish(arguments, context.environ, context.profile)
    plan = _decided(asked, context)
    if plan.build is None:
        context.say(decision_text(plan))
        reasons = "; ".join(plan.why)
        raise NothingSuits(f"nothing was made: {reasons}", hint=plan.hint)
    context.say(decision_text(plan))
    if arguments.dry_run:
        if arguments.json:
            context.print_json(plan.to_document())
        return 0
    return _make(plan, asked, context)


def _decided(asked: Wish, context: Context) -> Plan:
    question = Question(host=context.host, wish=asked, catalogue=context.catalogue)
    plan = resolve(question)
    if asked.offline or plan.outcome is Outcome.BLOCKED:
        return plan
    from torchenv.actions.ask_index import asked_again

    return asked_again(plan, question, context.fetch, context.run)


def _make(plan: Plan, asked: Wish, context: Context) -> int:
    from torchenv.actions.create import Order, create
    from torchenv.render.environment import made_text, shown

    assert plan.build is not None
    for constraint in context.inherited.forbidding(plan.build.requirements):
        context.say(f"note: ignored, though it forbids what is planned: {constraint}")
    order = Order(
        plan=plan,
        host=context.host,
        profile=context.profile,
        catalogue=context.catalogue,
        by_hand=asked.by_hand,
        package_index=context.package_index,
        ignored=context.inherited.ignored,
    )
    made = create(order, context.ports)
    context.warn_of_surroundings(made.environment.torch)
    if context.arguments.json:
        context.print_json(shown(made.environment, context.store))
    else:
        context.out(made_text(made, order))
    if context.arguments.use:
        _use(made.environment, context)
    return 0


def _use(environment: Environment, context: Context) -> None:
    from torchenv.actions.switch import use
    from torchenv.render.switch import switch_text

    proof = context.profile.smoke.required
    switched = use(str(environment.number), context.store, context.outside, why="create", proof=proof)
    # With --json the document on stdout is what was made.
    (context.say if context.arguments.json else context.out)(switch_text(switched))
