"""Before a switch it is said which checkpoints the other environment cannot read, and a copy is offered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.checkpoints import contents, save, settle
from tests.support.workspace import Workspace

from torchenv.actions.checkpoints import scan_and_record
from torchenv.actions.run_readability import RunReadability, copy_newest_saves, judge_runs
from torchenv.actions.switch import Switched, rollback, use
from torchenv.storage import place
from torchenv.workspace.records import Run


def saved_on_both(workspace: Workspace) -> Path:
    """Save step 100 on 2.14.1, steps 200 and 300 on 2.15.0, which is in use, and scan."""
    workspace.adopted(workspace.directory / "old")
    new = workspace.built()
    use(str(new.number), workspace.store, workspace.outside)
    runs = workspace.directory / "runs"
    save(runs / "a" / "step-100", "dcp-2.14.1")
    save(runs / "a" / "step-200", "dcp-2.15.0")
    save(runs / "a" / "step-300", "dcp-2.15.0")
    save(runs / "a" / "step-400", "dcp-nometa")
    scan(workspace, runs)
    return runs


def scan(workspace: Workspace, runs: Path) -> None:
    scan_and_record([place(runs)], workspace.store, whole=True, system="linux", say=lambda _: None)


def back(workspace: Workspace) -> tuple[Switched, list[str]]:
    """Roll back; gives what was said while the old pointer still stood."""
    said: list[str] = []

    def say(text: str) -> None:
        assert workspace.store.read().current == 2
        said.append(text)

    return rollback(None, workspace.store, replace(workspace.outside, say=say)), said


def test_the_manifest_has_one_line_for_each_run(workspace: Workspace) -> None:
    saved_on_both(workspace)
    assert workspace.store.read().runs == (
        Run(
            path="runs/a",
            newest="step-300",
            newest_readable={1: "step-100", 2: "step-300"},
            needs="2.15",
            downgrades_for=(1,),
            broken=("step-400",),
        ),
    )


def test_a_rollback_warns_before_it_switches(workspace: Workspace) -> None:
    # Case 33.
    runs = saved_on_both(workspace)
    before = contents(runs)
    switched, said = back(workspace)
    old = switched.now
    assert said == [
        (
            f"runs/a: step-300 cannot be read by environment {old} (it needs torch 2.15);"
            " step-100 is the newest readable save, 200 steps behind"
        ),
        "  copy it with `torchenv checkpoints downgrade runs/a/step-300 --for 2.14`",
        "runs/a: newer than step-300 but incomplete: step-400",
    ]
    assert contents(runs) == before


def test_every_checkpoint_that_is_left_behind_is_named_to_programs(workspace: Workspace) -> None:
    saved_on_both(workspace)
    switched, _ = back(workspace)
    left = RunReadability(
        run="runs/a",
        newest_readable="runs/a/step-100",
        steps_behind=200,
        unreadable=("runs/a/step-200", "runs/a/step-300"),
        downgradable=("runs/a/step-200", "runs/a/step-300"),
    )
    assert judge_runs(switched, workspace.store, "linux") == (left,)

    # Without the index, the manifest knows the newest.
    workspace.store.index_path.unlink()
    newest = ("runs/a/step-300",)
    assert judge_runs(switched, workspace.store, "linux") == (
        replace(left, unreadable=newest, downgradable=newest),
    )


def test_the_newest_of_every_run_is_copied_along(workspace: Workspace) -> None:
    runs = saved_on_both(workspace)
    save(runs / "b" / "step-7", "2.15.0/dcp_plain")
    scan(workspace, runs)
    before = contents(runs)
    switched, _ = back(workspace)

    def along() -> tuple[list[str], tuple[str, ...]]:
        copies, refused = copy_newest_saves(
            replace(switched, runs=workspace.store.read().runs),
            workspace.store,
            system="linux",
            progress=lambda *_: None,
            say=lambda _: None,
        )
        return [Path(copy.copy).relative_to(workspace.directory).as_posix() for copy in copies], refused

    assert along() == (["runs/a-for-2.14/step-300", "runs/b-for-2.14/step-7"], ())
    assert [run.newest_readable[1] for run in workspace.store.read().runs] == [
        "../a-for-2.14/step-300",
        "../b-for-2.14/step-7",
    ]
    assert along() == ([], ())
    assert {name: file for name, file in contents(runs).items() if "-for-" not in name} == before


def test_a_scan_of_one_root_keeps_what_was_found_below_the_others(workspace: Workspace) -> None:
    workspace.adopted(workspace.directory / "old")
    for name in ("a", "b"):
        save(workspace.directory / name / "step-1", "dcp-2.14.1")
    for name, whole, expected in (("a", True, ["a"]), ("b", False, ["a", "b"]), ("b", True, ["b"])):
        root = place(workspace.directory / name)
        scan_and_record([root], workspace.store, whole=whole, system="linux", say=lambda _: None)
        assert sorted(run.path for run in workspace.store.read().runs) == expected


def test_a_scan_in_which_nothing_changed_writes_nothing(workspace: Workspace) -> None:
    runs = saved_on_both(workspace)
    settle(runs)
    scan(workspace, runs)
    written = [workspace.store.index_path, workspace.store.manifest_path]
    before = [path.stat().st_mtime_ns for path in written]
    scan(workspace, runs)
    assert [path.stat().st_mtime_ns for path in written] == before
