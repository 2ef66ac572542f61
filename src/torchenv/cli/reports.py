"""`audit`, `report`: what code breaks on a new release, and where things stand."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, NamedTuple

from torchenv.cli.gather import audit_paths, read_host, rescan_checkpoints
from torchenv.cli.options import add_catalogue
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.session import Session, now, write_text

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = ("text", "json", "sarif")
SEVERITIES = ("note", "warning", "error")
FOUND_SOMETHING = 1


class AuditFlags(NamedTuple):
    """What `audit` takes."""

    paths: list[str]
    format: str
    fail_on: str
    release: str | None
    since: str | None


def declare_audit(parser: Parser) -> None:
    """Declare what `audit` takes."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="File, or folder with all below it")
    parser.add_argument("--format", choices=FORMATS, default="text", help="Output format (default: text)")
    parser.add_argument("--json", action="store_true", help="Same as --format json")
    parser.add_argument(
        "--fail-on", choices=SEVERITIES, default="warning", help="Lowest severity that exits 1 (warning)"
    )
    parser.add_argument("--release", metavar="VERSION", help="Audit for this release (default: the newest)")
    parser.add_argument("--since", metavar="VERSION", help="Leave out changes up to this release")
    add_catalogue(parser)


def read_audit_flags(flags: Namespace, _: Path) -> AuditFlags:
    """Return the flags of `audit`."""
    written = "json" if flags.json else flags.format
    return AuditFlags(flags.paths, written, flags.fail_on, flags.release, flags.since)


def audit(flags: AuditFlags, session: Session) -> int:
    """Read everything, run nothing, and print what was found."""
    from torchenv.audit import RULES, Severity
    from torchenv.render.audit import document, sarif, text

    report = audit_paths(flags.paths, session, release=flags.release, since=flags.since)
    match flags.format:
        case "json":
            written = document(report)
        case "sarif":
            written = sarif(report, RULES)
        case _:
            written = text(report)
    session.output.print_written(written.rstrip("\n"))
    is_bad = report.is_blind or report.at_least(Severity[flags.fail_on.upper()])
    return FOUND_SOMETHING if is_bad else 0


class ReportFlags(NamedTuple):
    """What `report` takes."""

    html: str | None
    audit: list[str]


def declare_report(parser: Parser) -> None:
    """Declare what `report` takes."""
    parser.add_argument("--html", metavar="FILE", help="Write a self-contained HTML page to FILE")
    parser.add_argument(
        "--audit", metavar="PATH", action="append", default=[], help="Add what an audit of PATH finds"
    )


def report(flags: ReportFlags, session: Session) -> int:
    """Gather, and print or write the page; nothing else is changed."""
    from dataclasses import replace

    from torchenv.actions.status import Machine, status
    from torchenv.render.report import ReportData, describe_report

    settings, manifest = session.settings, session.store.read()
    seen = rescan_checkpoints(session, record=False)
    host = read_host((), session)
    found = status(
        session.store,
        settings.environ,
        settings.project,
        session.running,
        seen.runs,
        around=Machine(host, session.catalogue),
    )
    standing = ReportData(
        at=now(),
        root=str(settings.root),
        host=host,
        manifest=replace(manifest, runs=seen.runs),
        previous=found.before,
        audit=audit_paths(flags.audit, session) if flags.audit else None,
    )
    if flags.html is None:
        session.output.print_text(describe_report(standing))
        return 0
    from torchenv.render.page import list_timelines, render_page

    path = settings.cwd / flags.html
    scanned = seen.scanned
    lines = list_timelines(scanned.runs, scanned.judge, manifest) if scanned else ()
    wrong = (*(problem.message for problem in found.problems), *seen.notes)
    # Pages of older releases have a title alone.
    mark = r'<meta name="generator" content="torchenv|<title>torchenv: '
    write_text(path, render_page(standing, lines, wrong), mark=mark, other="--html report.html")
    session.output.say(f"wrote the report to {path}")
    return 0


COMMANDS = {
    "audit": CommandSpec(declare_audit, read_audit_flags, audit),
    "report": CommandSpec(declare_report, reader(ReportFlags), report),
}
