"""`remove` and `prune` delete what nobody needs, and say why the rest stays."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.workspace import Workspace, install, site_of

from torchenv.actions.remove import Pruned, Pruning, prune, remove
from torchenv.actions.switch import use
from torchenv.errors import NothingSuits, WorkspaceError
from torchenv.render.status import describe_removed
from torchenv.system.processes import Process
from torchenv.workspace.records import Environment, Kept, State


def replaceable(_: Environment) -> None:
    return None


def go(*args: Any, **options: Any) -> list[Environment]:
    return [removed.environment for removed in remove(*args, **options)]


def three(workspace: Workspace) -> tuple[Environment, Environment, Environment]:
    """Make three environments: 1 is the one before, 2 the one in use, and nobody needs 3."""
    made = workspace.built("2.14.1+cu130"), workspace.built("2.15.0+cu132"), workspace.built("2.15.0+cu134")
    use("1", workspace.store, workspace.outside)
    use("2", workspace.store, workspace.outside)
    return made


def test_an_environment_that_nobody_needs_goes_and_its_line_and_lock_stay(workspace: Workspace) -> None:
    *_, third = three(workspace)
    assert go(["3"], workspace.store, workspace.running, replaceable) == [third]
    assert not Path(third.path).exists()
    assert workspace.store.read().number(3).state is State.REMOVED
    assert workspace.store.lock_path(3).is_file()


@pytest.mark.parametrize(
    ("number", "why", "hint"),
    [
        ("2", "it is the active environment", "switch to another one first with `torchenv use 1`"),
        ("1", "it is the rollback target", "remove it anyway with --force"),
    ],
)
def test_the_one_in_use_and_the_one_to_go_back_to_stay(
    workspace: Workspace, number: str, why: str, hint: str
) -> None:
    made = three(workspace)
    with pytest.raises(NothingSuits) as caught:
        remove([number], workspace.store, workspace.running, replaceable)
    assert caught.value.message == f"environment {made[int(number) - 1]} is not removed: {why}"
    assert caught.value.hint == hint
    assert all(Path(built.path).is_dir() for built in made)


def test_by_force_the_one_to_go_back_to_goes_and_nothing_else_that_is_needed(workspace: Workspace) -> None:
    first, second, third = three(workspace)
    keep_checkpoint(workspace, 3)
    for number, why in (
        ("2", "it is the active environment"),
        ("3", "nothing else can read the kept checkpoint runs/a/step-100"),
    ):
        with pytest.raises(NothingSuits, match=why):
            remove([number], workspace.store, workspace.running, replaceable, force=True)
    assert go(["1"], workspace.store, workspace.running, replaceable, force=True) == [first]
    assert [Path(item.path).is_dir() for item in (first, second, third)] == [False, True, True]


def test_an_adopted_environment_is_never_touched(workspace: Workspace, tmp_path: Path) -> None:
    adopted = workspace.adopted(tmp_path / "project" / ".venv")
    three(workspace)
    with pytest.raises(NothingSuits) as caught:
        remove(["1"], workspace.store, workspace.running, replaceable)
    assert caught.value.message == (
        f"environment {adopted} is not removed: it was made elsewhere, and torchenv only reads it"
    )
    assert caught.value.hint == "forget it, its files stay: `torchenv forget 1`"
    prune(Pruning(keep=0), workspace.store, workspace.running, replaceable, dry_run=False)
    assert Path(adopted.path).is_dir()


def keep_checkpoint(workspace: Workspace, *readers: int) -> None:
    store = workspace.store
    with store.hold("torchenv checkpoints keep"):
        store.write(store.read().keep(Kept(path="runs/a/step-100", readable_by=readers)))


def test_the_only_one_that_reads_a_kept_checkpoint_stays(workspace: Workspace) -> None:
    *_, third = three(workspace)
    keep_checkpoint(workspace, 3)
    with pytest.raises(NothingSuits) as caught:
        remove(["3"], workspace.store, workspace.running, replaceable)
    assert caught.value.message == (
        f"environment {third} is not removed: nothing else can read the kept checkpoint runs/a/step-100"
    )
    keep_checkpoint(workspace, 1, 3)
    assert go(["3"], workspace.store, workspace.running, replaceable) == [third]


def test_a_reader_whose_directory_is_gone_is_no_other_reader(workspace: Workspace) -> None:
    *_, third = three(workspace)
    keep_checkpoint(workspace, 3, 1)
    Path(workspace.store.read().number(1).path).rename(workspace.directory / "elsewhere")
    with pytest.raises(NothingSuits) as caught:
        remove(["3"], workspace.store, workspace.running, replaceable)
    assert caught.value.message == (
        f"environment {third} is not removed: nothing else can read the kept checkpoint runs/a/step-100"
    )
    assert Path(third.path).is_dir()


def test_of_two_readers_removed_together_neither_goes(workspace: Workspace) -> None:
    *_, third = three(workspace)
    fourth = workspace.built("2.13.0+cu126")
    keep_checkpoint(workspace, 3, 4)
    with pytest.raises(NothingSuits, match="nothing else can read"):
        remove(["3", "4"], workspace.store, workspace.running, replaceable)
    assert Path(third.path).is_dir()
    assert Path(fourth.path).is_dir()
    pruned = prune(Pruning(keep=0), workspace.store, workspace.running, replaceable, dry_run=False)
    assert [gone.number for gone in pruned.gone] == [3]


def test_nothing_is_removed_under_a_process_that_runs_from_it(workspace: Workspace) -> None:
    *_, third = three(workspace)
    workspace.processes = {third.path: (Process(4711, "python train.py"),)}
    with pytest.raises(WorkspaceError) as caught:
        remove(["3"], workspace.store, workspace.running, replaceable)
    said = "it is still used by process 4711 (python train.py)"
    assert caught.value.message == f"environment {third} is not removed: {said}"
    pruned = prune(Pruning(keep=0), workspace.store, workspace.running, replaceable, dry_run=False)
    assert (third, said) in pruned.kept
    assert Path(third.path).is_dir()


def test_what_could_not_be_built_again_stays_until_it_is_forced(workspace: Workspace) -> None:
    *_, third = three(workspace)
    with pytest.raises(NothingSuits) as caught:
        remove(["3"], workspace.store, workspace.running, lambda _: "a file is gone")
    assert caught.value.message == f"environment {third} could not be built again: a file is gone"
    assert caught.value.hint == "keep it, or remove it anyway with --force"
    assert Path(third.path).is_dir()


def test_prune_spares_the_newest_and_the_needed_and_a_dry_run_deletes_nothing(workspace: Workspace) -> None:
    first, second, third = three(workspace)
    fourth = workspace.built("2.13.0+cu126")
    would = prune(Pruning(keep=1), workspace.store, workspace.running, replaceable, dry_run=True)
    assert would == Pruned(
        gone=(third,),
        kept=((first, "it is the rollback target"), (second, "it is the active environment")),
    )
    assert Path(third.path).is_dir()
    assert prune(Pruning(keep=1), workspace.store, workspace.running, replaceable, dry_run=False) == would
    assert not Path(third.path).exists()
    assert Path(fourth.path).is_dir()


def test_prune_goes_by_the_number_and_not_by_a_clock_that_was_set_back(workspace: Workspace) -> None:
    *_, third = three(workspace)
    workspace.hours -= 100
    fourth = workspace.built("2.13.0+cu126")
    assert fourth.created < third.created
    pruned = prune(Pruning(keep=1), workspace.store, workspace.running, replaceable, dry_run=True)
    assert pruned.gone == (third,)


def test_an_age_is_counted_from_the_last_use(workspace: Workspace) -> None:
    three(workspace)
    use("3", workspace.store, workspace.outside)
    use("1", workspace.store, workspace.outside)
    use("2", workspace.store, workspace.outside)
    unused = workspace.now() - workspace.store.read().find_last_use(3)

    def old_enough(age: timedelta) -> list[int]:
        pruning = Pruning.of(None, age, workspace.store.read().find_last_use(3) + unused)
        pruned = prune(pruning, workspace.store, workspace.running, replaceable, dry_run=True)
        return [gone.number for gone in pruned.gone]

    assert old_enough(unused) == []
    assert old_enough(unused - timedelta(minutes=1)) == [3]


def test_the_options_of_prune_settle_each_other(workspace: Workspace) -> None:
    now = workspace.now()
    month = timedelta(days=30)
    assert Pruning.of(None, None, now) == Pruning(keep=2)
    assert Pruning.of(3, None, now) == Pruning(keep=3)
    assert Pruning.of(None, month, now) == Pruning(keep=0, before=now - month)
    assert Pruning.of(1, month, now) == Pruning(keep=1, before=now - month)


def test_what_someone_put_in_the_place_of_an_environment_stays_and_stops_no_other(
    workspace: Workspace,
) -> None:
    *_, third = three(workspace)
    Path(third.path).rename(workspace.directory / "elsewhere")
    (workspace.directory / "elsewhere").rename(workspace.directory.parent / "far-away")
    Path(third.path).mkdir()
    thesis = Path(third.path, "thesis.txt")
    thesis.write_text("precious")
    pruned = prune(Pruning(keep=0), workspace.store, workspace.running, replaceable, dry_run=False)
    assert (third, f"{third.path} is not the environment that torchenv built there") in pruned.kept
    with pytest.raises(WorkspaceError) as caught:
        remove(["3"], workspace.store, workspace.running, replaceable)
    assert caught.value.message == f"{third.path} is not what torchenv built there: left alone"
    assert thesis.read_text() == "precious"
    assert workspace.store.read().number(3) == third


def test_what_is_lost_is_measured_and_named(workspace: Workspace) -> None:
    *_, third = three(workspace)
    install(site_of(third), "wandb", "0.20.1")
    inside, shared = Path(third.path) / "inside", workspace.directory / "shared"
    inside.write_bytes(b"x" * (1 << 20))
    shared.write_bytes(b"x" * (1 << 22))
    os.link(shared, Path(third.path) / "shared")
    (removed,) = remove(["3"], workspace.store, workspace.running, replaceable)
    assert removed.by_hand == ("wandb 0.20.1",)
    assert 1 << 20 <= removed.freed < 1 << 22
    assert describe_removed(replace(removed, freed=3 << 29)) == (
        f"removed environment {third} (1.5 GiB freed)\n"
        "  rebuild it with `torchenv restore 3`\n"
        "  not rebuilt with it, as added by hand: wandb 0.20.1"
    )


@pytest.mark.parametrize("text", [None, "torn ["])
def test_what_has_no_lock_is_not_said_to_be_rebuilt(workspace: Workspace, text: str | None) -> None:
    *_, third = three(workspace)
    lock = workspace.store.lock_path(3)
    lock.unlink()
    if text is not None:
        lock.write_text(text)
    (removed,) = remove(["3"], workspace.store, workspace.running, replaceable, force=True)
    assert describe_removed(replace(removed, freed=3 << 29)) == (
        f"removed environment {third} (1.5 GiB freed)\n"
        "  it cannot be rebuilt: its lock file is gone or damaged"
    )
