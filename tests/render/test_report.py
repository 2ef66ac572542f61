"""The report tells where things stand, in a terminal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from torchenv.audit import AuditReport, Finding, Severity, Unread
from torchenv.render.report import ReportData, describe_report
from torchenv.workspace.manifest import Manifest

NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)


def test_a_terminal_gets_one_page(standing: ReportData) -> None:
    text = describe_report(standing)
    assert text.startswith(
        "torchenv report, 2026-11-30 08:00 UTC, /p/.torchenv\n\nHost\n  system: linux-x86_64"
    )
    assert text.partition("\n\nEnvironments\n")[2] == (
        "          number  name                 torch         Python  state          "
        " checkpoints\n"
        "          1       2.14.1-cu126-py3.12  2.14.1+cu126  3.12.7  adopted, ready "
        " reads up to torch 2.14\n"
        "  active  2       2.15.0-cu132-py3.12  2.15.0+cu132  3.12.7  proven         "
        " reads up to torch 2.15\n"
        "\n"
        "Proofs\n"
        "  environment  check  result  when                  host   devices     torch         said\n"
        "  2            smoke  passed  2026-11-30 08:00 UTC  node7  NVIDIA L40  0123456789ab\n"
        "\n"
        "Switches\n"
        "  when                  from  to  why\n"
        "  2026-11-30 08:00 UTC  1     2   use\n"
        "\n"
        "Checkpoints\n"
        "  run     newest    newest for 1  newest for 2\n"
        "  runs/a  step-200  step-100      none\n"
        "\n"
        "Kept checkpoints\n"
        "  path             readable by\n"
        "  runs/a/step-100  1, 2"
    )


def test_an_empty_workspace_says_so_in_every_part(standing: ReportData) -> None:
    text = describe_report(replace(standing, manifest=Manifest()))
    assert text.partition("\n\nEnvironments\n")[2] == (
        "  none yet: make one with `torchenv create`\n\nProofs\n  none yet\n\nSwitches\n  none yet\n\n"
        "Checkpoints\n  none were scanned\n\nKept checkpoints\n  none are kept"
    )


def test_an_audit_is_summed_up_by_rule_the_gravest_first(standing: ReportData) -> None:
    findings = [
        Finding(
            path=path, line=3, column=1, rule=rule, severity=severity, why="because", remedy=f"mend {rule}"
        )
        for path, rule, severity in (
            ("a.py", "one-device", Severity.WARNING),
            ("b.py", "removed-index", Severity.ERROR),
            ("c.py", "one-device", Severity.WARNING),
        )
    ]
    audit = AuditReport(
        release="2.15.0", files=4, findings=tuple(findings), unread=(Unread("d.py", "not UTF-8"),)
    )
    assert describe_report(replace(standing, audit=audit)).partition("\n\nAudit ")[2] == (
        "for torch 2.15.0\n"
        "  3 findings in 4 files\n"
        "  d.py could not be read: not UTF-8\n"
        "  severity  rule           found  first at  what to do\n"
        "  error     removed-index  1      b.py:3    mend removed-index\n"
        "  warning   one-device     2      a.py:3    mend one-device"
    )
