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

    from torchenv.cli.audit import audit_paths
    from torchenv.cli.rescan import rescan_checkpoints
    from torchenv.render.report import ReportData, describe_report, report_html

    manifest = context.store.read()
    standing = ReportData(
        at=context.now(),
        root=str(context.root),
        host=context.host,
        manifest=replace(manifest, runs=rescan_checkpoints(context, record=False).runs),
        audit=audit_paths(arguments.audit) if arguments.audit else None,
    )
    if arguments.html is None:
        context.out(describe_report(standing))
        return 0
    path = context.cwd / arguments.html
    try:
        path.write_text(report_html(standing), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    context.say(f"the report is in {path}")
    return 0
