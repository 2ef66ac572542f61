"""`use` and `rollback` move one pointer, tell the truth about it, and never lead nowhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.workspace import START, Workspace, install, site_of

from torchenv.actions.run_readability import judge_runs
from torchenv.actions.status import status
from torchenv.actions.switch import rollback, use
from torchenv.errors import NothingSuits, WorkspaceError
from torchenv.profile.model import Smoke
from torchenv.render.environment import describe_list
from torchenv.render.status import describe_status
from torchenv.render.switch import describe_history, describe_switch, encode_switch
from torchenv.system.processes import Process
from torchenv.workspace.records import Environment, Proof, Run, Switch


def verified(environment: Environment) -> str:
    """Return what a switch says of one that is in order."""
    assert environment.torch is not None
    return f"Python {environment.python.version} and torch {environment.torch.partition('+')[0]} verified"


def two_in_turn(workspace: Workspace) -> tuple[Environment, Environment]:
    old, new = workspace.built("2.14.1+cu130"), workspace.built("2.15.0+cu132")
    use("1", workspace.store, workspace.outside)
    use("2", workspace.store, workspace.outside)
    return old, new


def test_a_switch_moves_the_pointer_and_current_with_it(workspace: Workspace) -> None:
    old, new = workspace.built("2.14.1+cu130"), workspace.built("2.15.0+cu132")
    first = use("2.14", workspace.store, workspace.outside)
    assert (first.before, first.now) == (None, old)
    second = use(new.name, workspace.store, workspace.outside)
    assert (second.before, second.now) == (old, new)
    assert workspace.store.read().current == 2
    assert str(workspace.store.current.readlink()) == new.path


def test_a_rollback_leads_to_the_environment_before_and_a_second_one_back_again(workspace: Workspace) -> None:
    old, new = two_in_turn(workspace)
    assert rollback(None, workspace.store, workspace.outside).now == old
    assert rollback(None, workspace.store, workspace.outside).now == new
    assert [(switche.from_, switche.to, switche.why) for switche in workspace.store.read().switches] == [
        (None, 1, "use"),
        (1, 2, "use"),
        (2, 1, "rollback"),
        (1, 2, "rollback"),
    ]


def test_a_rollback_may_name_where_to(workspace: Workspace) -> None:
    two_in_turn(workspace)
    workspace.built("2.13.0+cu126")
    assert rollback("2.13", workspace.store, workspace.outside).now.number == 3


def test_before_any_switch_a_rollback_offers_to_make_the_line_before(workspace: Workspace) -> None:
    workspace.built("2.15.0+cu132")
    use("1", workspace.store, workspace.outside)
    with pytest.raises(NothingSuits) as caught:
        rollback(None, workspace.store, workspace.outside)
    assert (caught.value.exit_code, caught.value.message) == (3, "no previous environment to roll back to")
    assert caught.value.hint == "make one with `torchenv create 2.14`"
    assert workspace.store.read().current == 1


def test_what_can_no_longer_be_used_is_passed_over_with_the_reason(workspace: Workspace) -> None:
    oldest = workspace.built("2.13.0+cu126")
    use("1", workspace.store, workspace.outside)
    old = workspace.built("2.14.1+cu130")
    use("2", workspace.store, workspace.outside)
    workspace.built("2.15.0+cu132")
    use("3", workspace.store, workspace.outside)
    (Path(old.path) / "bin" / "python").unlink()
    (Path(old.path) / "bin" / "python").symlink_to("/no/such/python")

    switched = rollback(None, workspace.store, workspace.outside)

    assert switched.now == oldest
    gone = f"its interpreter is gone: {old.path}/bin/python"
    assert switched.said == (f"skipping environment {old}: {gone}", verified(oldest))


def test_with_nothing_left_that_could_be_used_a_rollback_says_why_and_stays(workspace: Workspace) -> None:
    old, _ = two_in_turn(workspace)
    shutil.rmtree(old.path)
    with pytest.raises(NothingSuits) as caught:
        rollback(None, workspace.store, workspace.outside)
    assert caught.value.message == (
        "no previous environment to roll back to;"
        f" skipping environment {old}: {old.path} is no longer on disk"
    )
    assert (
        caught.value.hint == f"make one with `torchenv create 2.14`; rebuild {old} with `torchenv restore 1`"
    )
    assert workspace.store.read().current == 2


def failed(workspace: Workspace, environment: Environment) -> None:
    store = workspace.store
    with store.hold("torchenv smoke"):
        proof = Proof(at=workspace.now(), passed=False, what="smoke")
        store.write(store.read().record_check(environment.number, proof))


def test_a_rollback_leads_to_one_that_failed_where_there_is_no_other_and_says_so(
    workspace: Workspace,
) -> None:
    old, _ = two_in_turn(workspace)
    failed(workspace, old)
    at = workspace.store.read().number(1).proofs[-1].at
    said = (
        f"environment {old} failed its smoke commands at {at:%Y-%m-%d %H:%M}; there is no other previous one"
    )
    looked = status(workspace.store, {}, None, workspace.running)
    assert f"rollback: to environment {old}, whose smoke commands failed" in describe_status(
        looked, Path("w"), START
    )
    switched = rollback(None, workspace.store, workspace.outside)
    assert switched.now.number == 1
    assert switched.said == (said, verified(old))


def test_a_rollback_prefers_one_that_did_not_fail(workspace: Workspace) -> None:
    oldest, before, now = (workspace.built(f"2.1{n}.0+cpu") for n in (3, 4, 5))
    for item in (oldest, before, now):
        use(str(item.number), workspace.store, workspace.outside)
    failed(workspace, before)
    switched = rollback(None, workspace.store, workspace.outside)
    assert (switched.now, switched.said) == (oldest, (verified(oldest),))


def test_one_that_failed_and_was_never_in_use_is_gone_back_to_only_by_its_number(
    workspace: Workspace,
) -> None:
    workspace.built("2.15.0+cu132")
    other = workspace.built("2.14.1+cu130")
    use("1", workspace.store, workspace.outside)
    failed(workspace, other)
    with pytest.raises(NothingSuits) as caught:
        rollback(None, workspace.store, workspace.outside)
    assert caught.value.message == "no previous environment to roll back to"
    assert caught.value.hint == (
        f"switch to {other}, whose smoke commands failed, with `torchenv rollback 2`;"
        " make one with `torchenv create 2.14`"
    )
    assert rollback("2", workspace.store, workspace.outside).now.number == 2


def test_a_list_shows_of_an_adopted_environment_that_it_failed(workspace: Workspace, tmp_path: Path) -> None:
    adopted = workspace.adopted(tmp_path / ".venv")
    assert "  adopted  " in describe_list(workspace.store.read())
    failed(workspace, adopted)
    assert "  adopted, failed  " in describe_list(workspace.store.read())


def test_an_environment_that_is_gone_cannot_be_put_in_use_and_its_lock_is_named(workspace: Workspace) -> None:
    old, _ = two_in_turn(workspace)
    shutil.rmtree(old.path)
    with pytest.raises(WorkspaceError) as caught:
        use("1", workspace.store, workspace.outside)
    assert caught.value.message == f"environment {old} cannot be used: {old.path} is no longer on disk"
    assert caught.value.hint == "rebuild it with `torchenv restore 1`"
    assert workspace.store.read().current == 2


def test_a_repair_in_place_that_failed_midway_is_no_place_to_go_back_to(workspace: Workspace) -> None:
    old, _ = two_in_turn(workspace)
    # An installer had taken the old torch away when it failed.
    shutil.rmtree(site_of(old) / "torch")
    shutil.rmtree(next(site_of(old).glob("torch-*.dist-info")))
    with pytest.raises(NothingSuits) as caught:
        rollback(None, workspace.store, workspace.outside)
    assert f"torch 2.14.1+cu130 is no longer in {old.path}" in caught.value.message
    assert workspace.store.read().current == 2


def test_a_torch_that_someone_replaced_is_told_as_drift(workspace: Workspace) -> None:
    old, _ = two_in_turn(workspace)
    install(site_of(old), "torch", "2.13.0")
    switched = rollback(None, workspace.store, workspace.outside)
    assert switched.said == ("drift: torch 2.14.1+cu130 -> 2.13.0",)
    assert workspace.store.read().switches[-1].said == switched.said


def test_what_is_in_use_already_is_no_switch(workspace: Workspace) -> None:
    two_in_turn(workspace)
    switched = use("2", workspace.store, workspace.outside)
    assert not switched.has_moved
    assert len(workspace.store.read().switches) == 2
    assert describe_switch(switched).splitlines()[0] == f"environment {switched.now} is already active"


def test_processes_that_still_run_from_the_other_environment_are_named(workspace: Workspace) -> None:
    _, new = two_in_turn(workspace)
    training = Process(4711, "python train.py")
    editor = Process(815, "current/bin/python -m pylsp")
    workspace.processes = {new.path: (training,), str(workspace.store.current): (editor, training)}
    switched = rollback(None, workspace.store, workspace.outside)
    assert switched.running == (training, editor)
    assert f"  {new} is still used by process 4711 (python train.py)" in describe_switch(switched)


REQUIRED = Smoke(commands=(("python", "smoke.py"),), required=True)


@pytest.mark.parametrize("proof", [None, REQUIRED])
def test_what_failed_its_smoke_commands_is_used_only_by_force(
    workspace: Workspace, proof: Smoke | None
) -> None:
    environment = workspace.built()
    store = workspace.store
    with store.hold("torchenv smoke"):
        failed = Proof(at=workspace.now(), passed=False, what="smoke")
        store.write(store.read().record_check(environment.number, failed))
    with pytest.raises(NothingSuits) as caught:
        use("1", store, workspace.outside, proof=proof)
    assert caught.value.message == f"environment {environment} failed its smoke commands"
    assert caught.value.hint == "run `torchenv smoke 1`, or use it anyway: `torchenv use 1 --force`"
    assert use("1", store, workspace.outside, force=True, proof=proof).now.number == 1


def test_where_the_profile_requires_proof_an_unproven_environment_is_used_only_by_force(
    workspace: Workspace,
) -> None:
    environment = workspace.built()
    with pytest.raises(NothingSuits) as caught:
        use("1", workspace.store, workspace.outside, proof=REQUIRED)
    assert caught.value.message == (
        f"environment {environment} has not passed its smoke commands, which the profile requires"
    )
    assert workspace.store.read().current is None
    store = workspace.store
    with store.hold("torchenv smoke"):
        proof = Proof(at=workspace.now(), passed=True, what="smoke", commands=("python smoke.py",))
        store.write(store.read().record_check(1, proof))
    assert use("1", store, workspace.outside, proof=REQUIRED).has_moved


def test_a_proof_by_the_commands_of_another_profile_does_not_count(workspace: Workspace) -> None:
    environment = workspace.built()
    store = workspace.store
    with store.hold("torchenv smoke"):
        proof = Proof(at=workspace.now(), passed=True, what="smoke", profile="quick")
        store.write(store.read().record_check(1, proof))
    with pytest.raises(NothingSuits) as caught:
        use("1", store, workspace.outside, proof=REQUIRED)
    assert caught.value.message == (
        f"environment {environment} passed the smoke commands of another profile (quick), not of this one"
    )


def test_the_previous_and_an_adopted_environment_need_no_proof(workspace: Workspace) -> None:
    workspace.adopted(workspace.directory / "work" / ".venv")
    workspace.built("2.14.1+cu130")
    workspace.built("2.15.0+cu132")
    use("2", workspace.store, workspace.outside)
    use("3", workspace.store, workspace.outside)
    assert use("2", workspace.store, workspace.outside, proof=REQUIRED).now.number == 2
    assert use("1", workspace.store, workspace.outside, proof=REQUIRED).now.number == 1


def test_after_its_project_was_renamed_everything_is_found_and_recorded_where_it_is(tmp_path: Path) -> None:
    project = tmp_path / "old"
    project.mkdir()
    before = Workspace(project)
    before.adopted(project / ".venv")
    before.built("2.15.0+cu132")
    use("2", before.store, before.outside)
    project.rename(tmp_path / "new")

    after = Workspace(tmp_path / "new", hours=9)
    switched = rollback(None, after.store, after.outside)

    assert switched.now.path == str(tmp_path / "new" / ".venv")
    assert str(after.store.current.readlink()) == str(tmp_path / "new" / ".venv")
    second = rollback(None, after.store, after.outside).now
    assert second.path == str(tmp_path / "new" / "workspace" / "envs" / f"2-{second.name}")


def test_a_switch_clears_what_an_earlier_run_left(workspace: Workspace) -> None:
    two_in_turn(workspace)
    store = workspace.store
    with store.hold("torchenv create"):
        manifest, new = store.read().begin(
            "2.16",
            within=store.environments,
            python=workspace.store.read().number(1).python,
            at=workspace.now(),
        )
        store.write(manifest)
        Path(new.path).mkdir()
    rollback(None, workspace.store, workspace.outside)
    assert workspace.store.read().list_unfinished() == ()
    assert not Path(new.path).exists()


def test_a_switch_is_told_to_programs_as_the_contract_says(workspace: Workspace) -> None:
    old, _ = two_in_turn(workspace)
    store = workspace.store
    run = Run(path="runs/a", newest="step-200", newest_readable={1: "step-100", 2: "step-200"})
    with store.hold("torchenv checkpoints scan"):
        store.write(store.read().record_runs([run]))
    switched = rollback(None, store, workspace.outside)
    assert encode_switch(switched, judge_runs(switched, store, "linux")) == {
        "schema": "torchenv.switch/1",
        "from": 2,
        "to": 1,
        "path": old.path,
        "said": [verified(old)],
        "running": [],
        "checkpoints": [
            {
                "run": "runs/a",
                "newest_readable": "runs/a/step-100",
                "steps_behind": 100,
                "unreadable": ["runs/a/step-200"],
                "downgradable": [],
            }
        ],
    }


def test_the_history_tells_each_switch_with_what_the_checks_said(workspace: Workspace) -> None:
    old, new = two_in_turn(workspace)
    rollback(None, workspace.store, workspace.outside)
    manifest = workspace.store.read()
    assert manifest.switches[-1] == Switch(
        at=manifest.switches[-1].at, from_=2, to=1, why="rollback", said=(verified(old),)
    )
    assert describe_history(manifest).splitlines()[-2:] == [
        f"2026-11-30 13:00:00  rollback: {new} -> {old}",
        f"    {verified(old)}",
    ]
