"""`torchenv audit`: what in this code the new release breaks."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchenv.cli.context import Context

if TYPE_CHECKING:
    from torchenv.audit import AuditReport

FORMATS = ("text", "json", "sarif")
SEVERITIES = ("note", "warning", "error")
FOUND_SOMETHING = 1


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, or a folder with all below it")
    parser.add_argument("--format", choices=FORMATS, default="text", help="how it is written (text)")
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="--format json")
    parser.add_argument(
        "--fail-on", choices=SEVERITIES, default="warning", help="the least finding that exits 1 (warning)"
    )


def run(arguments: Namespace, context: Context) -> int:
    """Read everything, run nothing, and print what was found."""
    from torchenv.audit import RULES, Severity
    from torchenv.render.audit import document, sarif, text

    report = audit_paths(arguments.paths)
    match arguments.format:
        case "json":
            written = document(report)
        case "sarif":
            written = sarif(report, RULES)
        case _:
            written = text(report)
    context.out(written.rstrip("\n"))
    return FOUND_SOMETHING if report.at_least(Severity[arguments.fail_on.upper()]) else 0


def audit_paths(paths: Sequence[str]) -> AuditReport:
    """Audit what the user named, under the names that the user gave."""
    from torchenv.actions.audit import audit
    from torchenv.audit import read_breakages
    from torchenv.catalogue import resources

    return audit(
        [Path(each) for each in paths], read_breakages(resources.section("audit"), resources.catalogue())
    )
