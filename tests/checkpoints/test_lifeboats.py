"""What the record says of training runs and of kept checkpoints, in words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from packaging.version import Version

from torchenv.checkpoints.lifeboats import describe_run, find_newest_kept, out_of_reach
from torchenv.environment.base_python import BasePython
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, EnvironmentKind, Kept, Run, State

NOW = datetime(2026, 11, 30, 8, tzinfo=UTC)
OLD = Environment(
    number=1,
    name="2.14.1-cu126-py3.11",
    kind=EnvironmentKind.ADOPTED,
    state=State.READY,
    path="/old",
    python=BasePython("3.11.7", "/usr/bin/python3.11"),
    torch="2.14.1+cu126",
    created=NOW,
)
RUN = Run(
    path="runs/a",
    newest="step-200",
    newest_readable={1: "step-100", 2: "step-200"},
    needs="2.15",
    downgrades_for=(1,),
)


def kept(path: str, days: int, *numbers: int) -> Kept:
    return Kept(path=path, digest="sha256:0", readable_by=numbers, saved=NOW - timedelta(days=days))


def test_what_an_environment_cannot_read_is_told_with_the_way_out() -> None:
    assert list(describe_run(RUN, OLD)) == [
        (
            "runs/a: step-200 cannot be read by environment 1 (2.14.1-cu126-py3.11) (it needs torch 2.15);"
            " step-100 is the newest readable save, 100 steps behind"
        ),
        "  copy it with `torchenv checkpoints downgrade runs/a/step-200 --for 2.14`",
    ]


def test_nothing_is_told_where_the_newest_can_be_read() -> None:
    assert list(describe_run(RUN, replace(OLD, number=2))) == []


def test_a_copy_of_the_newest_is_told_where_only_that_can_be_read() -> None:
    copied = replace(RUN, newest_readable={1: "step-200-for-2.14"})
    assert list(describe_run(copied, OLD)) == [
        (
            "runs/a: step-200 cannot be read by environment 1 (2.14.1-cu126-py3.11);"
            " its copy step-200-for-2.14 can"
        )
    ]


def test_what_no_scan_has_seen_is_told_so_and_never_as_none() -> None:
    run = replace(RUN, newest_readable={}, unjudged_for=(1,), broken=("step-300",))
    assert list(describe_run(run, OLD)) == [
        "runs/a: not scanned since environment 1 was made; run `torchenv checkpoints scan`",
        "runs/a: newer than step-200 but incomplete: step-300",
    ]


def test_a_run_of_which_nothing_can_be_read_is_told_so() -> None:
    (line,) = describe_run(replace(RUN, newest_readable={}, downgrades_for=()), OLD)
    assert line == (
        "runs/a: step-200 cannot be read by environment 1 (2.14.1-cu126-py3.11) (it needs torch 2.15);"
        " no checkpoint in this run is readable"
    )


@pytest.mark.parametrize(
    ("lacks", "reason"), [({1: "numpy>=1.26"}, " (it needs numpy>=1.26)"), ({2: "numpy>=1.26"}, "")]
)
def test_the_reason_is_never_a_torch_that_the_environment_has(lacks: dict[int, str], reason: str) -> None:
    run = replace(RUN, needs="2.2", lacks=lacks, newest_readable={}, downgrades_for=())
    (line,) = describe_run(run, OLD)
    assert line == (
        f"runs/a: step-200 cannot be read by environment 1 (2.14.1-cu126-py3.11){reason};"
        " no checkpoint in this run is readable"
    )


def test_newer_saves_that_are_broken_are_named() -> None:
    run = replace(RUN, newest_readable={1: "step-200"}, broken=("step-300",))
    assert list(describe_run(run, OLD)) == ["runs/a: newer than step-200 but incomplete: step-300"]


def test_a_name_that_would_act_on_a_terminal_is_written_out() -> None:
    run = Run(path="runs/a", newest="step-1", newest_readable={1: "step-1"}, broken=("step-2\x1b[2J",))
    assert list(describe_run(run, OLD)) == [r"runs/a: newer than step-1 but incomplete: 'step-2\x1b[2J'"]


def test_the_newest_lifeboat_is_the_one_that_the_environment_in_use_reads() -> None:
    manifest = Manifest(kept=(kept("a", 9, 1), kept("b", 3, 1, 2), kept("c", 1, 2)))
    assert find_newest_kept(replace(manifest, current=1)) == kept("b", 3, 1, 2)
    assert find_newest_kept(replace(manifest, current=3)) is None


def test_a_plan_that_ends_on_an_old_torch_is_told_what_that_cannot_read() -> None:
    # Case 33.
    manifest = Manifest(runs=(RUN, replace(RUN, path="runs/b", needs="2.4"), Run(path="runs/c")))
    assert out_of_reach(manifest, Version("2.14.1")) == [
        "runs/a: step-200 needs torch 2.15, and torch 2.14.1 cannot read it"
    ]
    assert out_of_reach(manifest, Version("2.15.0")) == []


def test_a_newer_save_that_is_being_written_is_named_as_that() -> None:
    run = replace(RUN, newest_readable={1: "step-200"}, writing=("step-300",))
    assert list(describe_run(run, OLD)) == ["runs/a: being written or just stopped: step-300"]
