"""`torchenv report`: one page on where things stand."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context
from torchenv.errors import InputError


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "--html", metavar="FILE", help="write the page to FILE as HTML that needs nothing else"
    )
    parser.add_argument("--audit", metavar="PATH", action="append", help="add what an audit of PATH finds")


def run(arguments: Namespace, context: Context) -> int:
    """Gather, and print or write the page; nothing else is changed."""
    from dataclasses import replace

    from torchenv.actions.status import status
    from torchenv.cli.audit import audit_paths
    from torchenv.cli.rescan import rescan_checkpoints
    from torchenv.render.report import ReportData, describe_report

    manifest = context.store.read()
    seen = rescan_checkpoints(context, record=False)
    now = status(context.store, context.environ, context.project, context.running, seen.runs)
    standing = ReportData(
        at=context.now(),
        root=str(context.root),
        host=context.host,
        manifest=replace(manifest, runs=seen.runs),
        previous=now.before,
        audit=audit_paths(arguments.audit) if arguments.audit else None,
    )
    if arguments.html is None:
        context.out(describe_report(standing))
        return 0
    from torchenv.render.page import list_timelines, render_page

    path = context.cwd / arguments.html
    scanned = seen.scanned
    lines = list_timelines(scanned.runs, scanned.judge, manifest) if scanned else ()
    wrong = (*(problem.message for problem in now.problems), *seen.notes)
    try:
        page = render_page(standing, lines, wrong)
        path.write_text(page, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    context.say(f"the report is in {path}")
    return 0
