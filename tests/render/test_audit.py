"""How a report of an audit is written for people, programs and code hosts."""

from __future__ import annotations

import json
from dataclasses import replace

from torchenv.audit import RULES, AuditReport, Finding, Severity, Unread
from torchenv.render import audit

REPORT = AuditReport(
    release="2.15.0",
    files=12,
    findings=(
        Finding(
            path="src/my model.py",
            line=3,
            column=5,
            rule="one-device",
            severity=Severity.WARNING,
            why="no device",
            remedy="say it",
        ),
        Finding(
            path="/opt/a.so",
            line=1,
            column=1,
            rule="curand-native",
            severity=Severity.ERROR,
            why="no cuRAND",
            remedy="bring it",
        ),
    ),
    unread=(Unread("b.py", "not Python: line 1: invalid syntax"),),
)


def test_text_has_two_lines_for_each_finding_and_the_sum() -> None:
    assert audit.text(REPORT) == (
        "src/my model.py:3:5: warning: no device [one-device]\n"
        "    say it\n"
        "/opt/a.so:1:1: error: no cuRAND [curand-native]\n"
        "    bring it\n"
        "b.py: could not be read: not Python: line 1: invalid syntax\n"
        "1 error, 1 warning in 12 files, for torch 2.15.0; 1 could not be read\n"
    )


def test_text_says_when_there_is_nothing() -> None:
    report = AuditReport(release="2.15.0", files=1, findings=())
    assert audit.text(report) == "nothing found in 1 file, for torch 2.15.0\n"


def test_the_document_holds_every_finding() -> None:
    document = json.loads(audit.document(REPORT))
    assert document == {
        "schema": "torchenv.audit/1",
        "release": "2.15.0",
        "files": 12,
        "findings": [
            {
                "rule": "one-device",
                "severity": "warning",
                "path": "src/my model.py",
                "line": 3,
                "column": 5,
                "why": "no device",
                "do": "say it",
            },
            {
                "rule": "curand-native",
                "severity": "error",
                "path": "/opt/a.so",
                "line": 1,
                "column": 1,
                "why": "no cuRAND",
                "do": "bring it",
            },
        ],
        "unread": [{"path": "b.py", "why": "not Python: line 1: invalid syntax"}],
    }


def test_sarif_points_each_result_at_its_rule_and_its_place() -> None:
    log = json.loads(audit.sarif(REPORT, RULES))
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    run = log["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [rule.name for rule in RULES]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert run["results"][0]["message"] == {"text": "no device. To do: say it."}
    assert [result["level"] for result in run["results"]] == ["warning", "error"]
    places = [item["locations"][0]["physicalLocation"] for item in run["results"]]
    assert places == [
        {
            "artifactLocation": {"uri": "src/my%20model.py"},
            "region": {"startLine": 3, "startColumn": 5},
        },
        {
            "artifactLocation": {"uri": "file:///opt/a.so"},
            "region": {"startLine": 1, "startColumn": 1},
        },
    ]


def test_sarif_tells_what_could_not_be_read() -> None:
    run = json.loads(audit.sarif(REPORT, RULES))["runs"][0]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is True
    assert invocation["toolExecutionNotifications"] == [
        {
            "level": "warning",
            "message": {"text": "could not be read: not Python: line 1: invalid syntax"},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": "b.py"}}}],
        }
    ]


def test_sarif_quotes_a_name_that_is_no_utf_8_byte_for_byte() -> None:
    named = replace(REPORT, findings=(replace(REPORT.findings[0], path="src/\udcff.py"),))
    (result,) = json.loads(audit.sarif(named, RULES))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "src/%FF.py"}
