"""The report tells where things stand, in a terminal and as a page that trusts no word from outside."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.plan.hosts import recorded

from torchenv.audit import AuditReport, Finding, Severity, Unread
from torchenv.environment.base_python import BasePython
from torchenv.render.report import ReportData, describe_report, report_html
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Kept, Proof, Run

NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)


@pytest.fixture
def standing() -> ReportData:
    manifest, _ = Manifest().adopt(
        "2.14.1-cu126-py3.12",
        path=Path("/p/.venv"),
        python=BasePython("3.12.7", "/usr/bin/python3.12"),
        at=NOW,
        torch="2.14.1+cu126",
        reads="dcp<=2.14",
    )
    manifest, new = manifest.begin(
        "2.15.0-cu132-py3.12",
        within=Path("/p/.torchenv/envs"),
        python=BasePython("3.12.7", "/usr/bin/python3.12"),
        at=NOW,
        torch="2.15.0+cu132",
        reads="dcp<=2.15",
    )
    manifest, _ = manifest.commit(new)
    proof = Proof(
        at=NOW,
        passed=True,
        what="smoke",
        host="node7",
        devices=("NVIDIA L40",),
        git="0123456789abcdef0123456789abcdef01234567",
    )
    manifest = manifest.record_check(2, proof).use(2, why="use", at=NOW)
    manifest = manifest.record_runs([Run(path="runs/a", newest="step-200", newest_readable={1: "step-100"})])
    manifest = manifest.keep(Kept(path="runs/a/step-100", readable_by=(1, 2)))
    return ReportData(at=NOW, root="/p/.torchenv", host=recorded("cpu-only-linux"), manifest=manifest)


def test_a_terminal_gets_one_page(standing: ReportData) -> None:
    text = describe_report(standing)
    assert text.startswith(
        "torchenv report, 2026-11-30 08:00 UTC, /p/.torchenv\n\nHost\n  system: linux-x86_64"
    )
    assert text.partition("\n\nEnvironments\n")[2] == (
        "          number  name                 torch         Python  state           reads\n"
        "          1       2.14.1-cu126-py3.12  2.14.1+cu126  3.12.7  adopted, ready  dcp<=2.14\n"
        "  in use  2       2.15.0-cu132-py3.12  2.15.0+cu132  3.12.7  proven          dcp<=2.15\n"
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
        "  run     newest    newest that 1 reads  newest that 2 reads\n"
        "  runs/a  step-200  step-100             none\n"
        "\n"
        "Kept checkpoints\n"
        "  path             readable by\n"
        "  runs/a/step-100  1, 2"
    )


def test_an_empty_workspace_says_so_in_every_part(standing: ReportData) -> None:
    text = describe_report(replace(standing, manifest=Manifest()))
    assert text.partition("\n\nEnvironments\n")[2] == (
        "  none yet: `torchenv create` makes one\n\nProofs\n  none yet\n\nSwitches\n  none yet\n\n"
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


class Tags(HTMLParser):
    """Collects the tags of a page, those that stay open, and its addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in {"meta", "link", "img", "br"}:
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(standing: ReportData) -> None:
    page = report_html(standing)
    tags = Tags()
    tags.feed(page)
    assert (tags.open, tags.addresses) == ([], [])
    assert tags.seen.isdisjoint({"script", "link", "img", "iframe"})
    assert not re.search(r"url\(|@import|https?:", page)
    assert '<td class="good">proven</td>' in page


def test_no_word_from_outside_becomes_part_of_the_page(standing: ReportData) -> None:
    bad = "<script>alert('x')</script>&\""
    manifest, new = Manifest().begin(
        "a", within=Path(bad), python=BasePython(bad, bad), at=NOW, torch=bad, reads=bad
    )
    manifest, _ = manifest.commit(new)
    proof = Proof(at=NOW, passed=False, what=bad, host=bad, devices=(bad,), git=bad, said=(bad,))
    manifest = manifest.record_check(1, proof).record_runs([Run(path=bad, newest=bad)])
    audit = AuditReport(
        release=bad,
        files=1,
        findings=(
            Finding(path=bad, line=1, column=1, rule=bad, severity=Severity.ERROR, why=bad, remedy=bad),
        ),
        unread=(Unread(bad, bad),),
    )
    page = report_html(replace(standing, root=bad, manifest=manifest, audit=audit))
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;" in page
