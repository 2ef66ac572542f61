"""`torchenv plan`: what would be made here, and why nothing else."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections import Counter

from torchenv.cli.context import Context
from torchenv.cli.options import add_choice, wish
from torchenv.errors import NothingSuits
from torchenv.plan import Outcome, Question, Wish, resolve


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    add_choice(parser, hosts=True)
    # What was asked for by name once happens by itself now.
    parser.add_argument("--online", action="store_true", help=SUPPRESS)
    parser.add_argument(
        "--audit", metavar="PATH", action="append", help="weigh in the advice what an audit of PATH finds"
    )
    parser.add_argument("--json", action="store_true", help="print the torchenv.plan/1 document")


def run(arguments: Namespace, context: Context) -> int:
    """Plan and print; nothing is changed. The index is asked, unless it is for a host file or `--offline`."""
    _tell_version_from_hosts(arguments, context)
    asked = wish(arguments, context.environ, context.profile)
    if arguments.host and len(arguments.host) > 1:
        return _of_fleet(asked, context)
    question = Question(
        host=context.host,
        wish=asked,
        catalogue=context.catalogue,
        known=context.gather_known(_findings(arguments)),
    )
    plan = resolve(question)
    if not (asked.offline or arguments.host) and plan.outcome is not Outcome.BLOCKED:
        from torchenv.actions.ask_index import replan_with_index

        query = context.query_indexes(is_plan=True)
        plan = replan_with_index(plan, question, query)
        context.remember(query)
    plan = context.add_warnings(plan)
    if arguments.json:
        context.print_json(plan.to_document())
    else:
        from torchenv.render.plan import describe_plan

        context.out(describe_plan(plan))
    return NothingSuits.exit_code if plan.outcome is Outcome.BLOCKED else 0


def _tell_version_from_hosts(arguments: Namespace, context: Context) -> None:
    # plan --host a.json b.json 2.15
    hosts = arguments.host or []
    if arguments.version is None and len(hosts) > 1:
        last = hosts[-1]
        if not last.endswith(".json") and not (context.cwd / last).exists():
            arguments.version = hosts.pop()


def _of_fleet(asked: Wish, context: Context) -> int:
    """Plan for several machines at once; their own interpreters are the ones that are taken."""
    from torchenv.plan.fleet import fleet
    from torchenv.render.fleet import describe_fleet

    found = fleet(context.hosts(context.arguments.host), asked, context.catalogue)
    if context.arguments.json:
        context.print_json(found.to_document())
    else:
        context.out(describe_fleet(found))
    return NothingSuits.exit_code if found.unserved else 0


def _findings(arguments: Namespace) -> Counter[str]:
    """Count what an audit of the paths finds, by severity."""
    findings: Counter[str] = Counter()
    if arguments.audit:
        from torchenv.cli.audit import audit_paths

        findings.update(str(each.severity) for each in audit_paths(arguments.audit).findings)
    return findings
