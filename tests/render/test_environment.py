"""A list says one line an environment and one a run, and counts what it does not show."""

from __future__ import annotations

from dataclasses import replace

from torchenv.render.environment import RUNS_SHOWN, describe_list
from torchenv.render.report import ReportData
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Run


def test_a_line_an_environment_and_a_line_a_run(standing: ReportData) -> None:
    lines = describe_list(standing.manifest).splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["1", "2.14.1-cu126-py3.12"], ["*", "2"]]
    assert "  reads up to torch 2.14  " in lines[0]
    assert lines[2:] == ["runs/a:  newest step-200  1: reads step-100 (100 steps behind)  2: reads none"]


def test_one_step_is_one_step_and_what_was_not_scanned_is_said_with_the_remedy(standing: ReportData) -> None:
    run = Run(path="runs/b", newest="step-2", newest_readable={1: "step-1"}, unjudged_for=(2,))
    lines = describe_list(standing.manifest.record_runs([run])).splitlines()
    assert lines[2] == "runs/b:  newest step-2  1: reads step-1 (1 step behind)  2: not scanned"
    assert "run `torchenv checkpoints scan`" in lines[3]


def test_what_is_not_shown_is_counted_and_shown_to_who_asks(standing: ReportData) -> None:
    runs = [Run(path=f"runs/{number}", newest="step-1") for number in range(RUNS_SHOWN + 1)]
    manifest = standing.manifest.record_runs(runs)
    assert describe_list(manifest).splitlines()[-1] == "1 more run not shown (see --all)"
    assert f"runs/{RUNS_SHOWN}:" in describe_list(manifest, show_all=True)
    assert describe_list(replace(manifest, runs=())).count("\n") == 1
    assert describe_list(Manifest()) == ""
