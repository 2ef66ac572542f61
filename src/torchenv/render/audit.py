"""An audit's report as text for people, as JSON, and as SARIF for editors and code hosts."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from torchenv.audit import AuditReport, Finding, Rule, Severity
from torchenv.system.words import count

if TYPE_CHECKING:
    from collections.abc import Sequence

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def text(report: AuditReport) -> str:
    """Write one finding in two lines, as compilers do, and the sum at the end."""
    lines = []
    for finding in report.findings:
        place = f"{finding.path}:{finding.line}:{finding.column}"
        lines.append(f"{place}: {finding.severity}: {finding.why} [{finding.rule}]")
        lines.append(f"    {finding.remedy}")
    lines += [f"{skipped.path}: could not be read: {skipped.why}" for skipped in report.unread]
    lines.append(_sum(report))
    return "\n".join(lines) + "\n"


def document(report: AuditReport) -> str:
    """Write the document `torchenv.audit/1`."""
    return _dump(
        {
            "schema": "torchenv.audit/1",
            "release": report.release,
            "files": report.files,
            "findings": [
                {
                    "rule": finding.rule,
                    "severity": str(finding.severity),
                    "path": finding.path,
                    "line": finding.line,
                    "column": finding.column,
                    "why": finding.why,
                    "do": finding.remedy,
                }
                for finding in report.findings
            ],
            "unread": [{"path": skipped.path, "why": skipped.why} for skipped in report.unread],
        }
    )


def sarif(report: AuditReport, rules: Sequence[Rule]) -> str:
    """Write SARIF 2.1.0; what could not be read is a notification of the run."""
    numbers = {rule.name: n for n, rule in enumerate(rules)}
    return _dump(
        {
            "$schema": _SARIF_SCHEMA,
            "version": "2.1.0",
            "runs": [
                {
                    "tool": {"driver": {"name": "torchenv", "rules": [_descriptor(r) for r in rules]}},
                    "columnKind": "unicodeCodePoints",
                    "invocations": [
                        {
                            "executionSuccessful": True,
                            "toolExecutionNotifications": [
                                {
                                    "level": "warning",
                                    "message": {"text": f"could not be read: {skipped.why}"},
                                    "locations": [_location(skipped.path)],
                                }
                                for skipped in report.unread
                            ],
                        }
                    ],
                    "results": [_result(finding, numbers) for finding in report.findings],
                }
            ],
        }
    )


def _sum(report: AuditReport) -> str:
    counts = Counter(finding.severity for finding in report.findings)
    parts = [count(counts[severity], str(severity)) for severity in reversed(Severity) if counts[severity]]
    found = ", ".join(parts) or "nothing found"
    read = f"{found} in {count(report.files, 'file')}, for torch {report.release}"
    return f"{read}; {len(report.unread)} could not be read" if report.unread else read


def _descriptor(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.name,
        "shortDescription": {"text": rule.title},
        "defaultConfiguration": {"level": str(rule.severity)},
    }


def _result(finding: Finding, numbers: dict[str, int]) -> dict[str, Any]:
    location = _location(finding.path)
    location["physicalLocation"]["region"] = {
        "startLine": finding.line,
        "startColumn": finding.column,
    }
    return {
        "ruleId": finding.rule,
        "ruleIndex": numbers[finding.rule],
        "level": str(finding.severity),
        "message": {"text": f"{finding.why}. To do: {finding.remedy}."},
        "locations": [location],
    }


def _location(path: str) -> dict[str, Any]:
    pure = PurePath(path)
    # A name that is no UTF-8 is quoted byte for byte, as `as_uri` does.
    uri = pure.as_uri() if pure.is_absolute() else quote(os.fsencode(pure.as_posix()))
    return {"physicalLocation": {"artifactLocation": {"uri": uri}}}


def _dump(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
