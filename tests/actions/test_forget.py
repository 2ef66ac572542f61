"""`forget` takes an adopted environment off the record, and touches nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.workspace import Workspace

from torchenv.actions.forget import forget
from torchenv.actions.switch import use
from torchenv.environment.fingerprint import fingerprint
from torchenv.environment.inspect import describe
from torchenv.errors import NothingSuits
from torchenv.workspace.records import Kept, Run


def test_an_adopted_environment_leaves_the_record_and_keeps_its_files(
    workspace: Workspace, tmp_path: Path
) -> None:
    adopted = workspace.adopted(tmp_path / "project" / ".venv")
    built = workspace.built()
    use("2", workspace.store, workspace.outside)
    before = fingerprint(describe(Path(adopted.path)))
    store = workspace.store
    with store.hold("a scan"):
        store.write_fingerprint(1, before.text)
        manifest = store.read().keep(Kept(path="runs/a/step-1", readable_by=(1, 2)))
        run = Run(
            path="runs/a", newest_readable={1: "step-1", 2: "step-2"}, downgrades_for=(1,), unjudged_for=(1,)
        )
        store.write(manifest.record_runs([run]))

    assert forget("1", store) == adopted

    after = store.read()
    assert after.environments == (built,)
    assert after.kept[0].readable_by == (2,)
    assert after.runs == (Run(path="runs/a", newest_readable={2: "step-2"}),)
    assert (after.next_number, [move.from_ for move in after.switches]) == (3, [1])
    assert fingerprint(describe(Path(adopted.path))) == before
    assert not store.fingerprint_path(1).exists()


def test_the_active_one_stays_on_the_record(workspace: Workspace, tmp_path: Path) -> None:
    adopted = workspace.adopted(tmp_path / ".venv")
    with pytest.raises(NothingSuits) as caught:
        forget("1", workspace.store)
    assert caught.value.message == f"environment {adopted} is the active environment"
    assert caught.value.hint == (
        "make another one first; `torchenv plan --explain` shows what there is to choose"
    )
    assert workspace.store.read().environments == (adopted,)


def test_one_that_torchenv_built_is_for_remove(workspace: Workspace) -> None:
    built = workspace.built()
    with pytest.raises(NothingSuits) as caught:
        forget("1", workspace.store)
    assert caught.value.message == f"environment {built} was built by torchenv, not adopted"
    assert caught.value.hint == "delete it with `torchenv remove 1`"


def test_the_only_reader_of_a_kept_checkpoint_stays(workspace: Workspace, tmp_path: Path) -> None:
    adopted = workspace.adopted(tmp_path / ".venv")
    workspace.built()
    use("2", workspace.store, workspace.outside)
    store = workspace.store
    with store.hold("a keep"):
        store.write(store.read().keep(Kept(path="runs/a/step-1", readable_by=(1,))))
    with pytest.raises(NothingSuits) as caught:
        forget("1", store)
    assert caught.value.message == (
        f"environment {adopted} is the only one that reads the kept checkpoint `runs/a/step-1`"
    )
    assert adopted in store.read().environments


def test_a_reader_whose_directory_is_gone_is_no_other_reader(workspace: Workspace, tmp_path: Path) -> None:
    adopted = workspace.adopted(tmp_path / ".venv")
    built = workspace.built()
    workspace.built("2.15.0+cu134")
    use("3", workspace.store, workspace.outside)
    store = workspace.store
    with store.hold("a keep"):
        store.write(store.read().keep(Kept(path="runs/a/step-1", readable_by=(1, 2))))
    Path(built.path).rename(tmp_path / "elsewhere")
    with pytest.raises(NothingSuits) as caught:
        forget("1", store)
    assert caught.value.message.startswith(f"environment {adopted} is the only one that reads")
    assert adopted in store.read().environments
