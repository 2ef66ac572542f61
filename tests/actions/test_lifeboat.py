"""A kept checkpoint is proven untouched, and nothing that alone can read it is removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.checkpoints import contents, save
from tests.support.workspace import Workspace

from torchenv.actions.downgrade import DowngradeTarget, downgrade
from torchenv.actions.lifeboat import Keeping, KeptChange, keep, release, verify
from torchenv.actions.remove import explain_need
from torchenv.errors import InputError, NothingSuits, WorkspaceError
from torchenv.render.checkpoints import describe_verified


def kept(workspace: Workspace, path: Path, *, copy: bool = False) -> Keeping:
    return keep(str(path), workspace.store, copy=copy, system="linux", progress=lambda *_: None)


def changes(workspace: Workspace, *paths: Path) -> tuple[KeptChange, ...]:
    return verify(tuple(map(str, paths)), workspace.store, lambda *_: None)[1]


def test_a_kept_checkpoint_is_recorded_with_who_reads_it(workspace: Workspace) -> None:
    old = workspace.adopted(workspace.directory / "old")
    new = workspace.built()
    step_100 = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    step_200 = save(workspace.directory / "runs" / "a" / "step-200", "dcp-2.15.0")

    first, second = kept(workspace, step_100), kept(workspace, step_200)

    assert (first.kept.path, first.kept.readable_by) == ("runs/a/step-100", (old.number, new.number))
    assert (second.kept.path, second.kept.readable_by) == ("runs/a/step-200", (new.number,))
    assert (first.files, first.kept.copy) == (2, None)
    assert workspace.store.read().kept == (first.kept, second.kept)


def test_the_environment_that_alone_reads_a_kept_checkpoint_is_needed(workspace: Workspace) -> None:
    workspace.adopted(workspace.directory / "old")
    new = workspace.built()
    path = save(workspace.directory / "runs" / "a" / "step-200", "dcp-2.15.0")
    assert explain_need(new, workspace.store.read(), workspace.store) is None

    kept(workspace, path)
    why = explain_need(new, workspace.store.read(), workspace.store)
    assert why == "nothing else can read the kept checkpoint runs/a/step-200"

    release(str(path), workspace.store)
    assert explain_need(new, workspace.store.read(), workspace.store) is None


def test_a_whole_run_is_not_kept_and_its_saves_are_named(workspace: Workspace) -> None:
    run = workspace.directory / "runs" / "a"
    saves = [save(run / "step-100", "dcp-2.14.1"), save(run / "step-200", "dcp-2.15.0")]
    with pytest.raises(InputError) as caught:
        kept(workspace, run)
    assert caught.value.message == f"{run} is not a checkpoint but holds 2 saves"
    assert caught.value.hint == (
        f"keep those that you may need, each by its path: {', '.join(map(str, saves))}"
    )
    assert workspace.store.read().kept == ()


def test_a_save_of_several_parts_is_kept_whole(workspace: Workspace) -> None:
    path = workspace.directory / "runs" / "a" / "checkpoint-500"
    save(path / "model", "dcp-2.14.1")
    save(path / "optimizer", "dcp-2.14.1")
    assert kept(workspace, path).kept.path == "runs/a/checkpoint-500"


def test_what_was_kept_is_proven_untouched_or_each_change_is_named(workspace: Workspace) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    kept(workspace, path)
    assert changes(workspace) == ()

    shard = path / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x01")
    (path / "notes").write_text("a note")
    (path / ".metadata").unlink()
    assert changes(workspace, path) == (
        KeptChange("runs/a/step-100", ".metadata", "missing"),
        KeptChange("runs/a/step-100", "__0_0.distcp", "changed"),
        KeptChange("runs/a/step-100", "notes", "added"),
    )


def test_a_kept_checkpoint_that_is_gone_is_missing(workspace: Workspace) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    kept(workspace, path)
    path.rename(path.with_name("elsewhere"))
    assert changes(workspace) == (KeptChange("runs/a/step-100", "", "missing"),)


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("name", ["optimizer", "rng_state.bin", "gone"])
def test_a_link_that_a_copy_would_leave_out_is_named_and_nothing_is_kept(
    workspace: Workspace, tmp_path: Path, name: str, *, copy: bool
) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    (tmp_path / "big" / "optimizer").mkdir(parents=True)
    (tmp_path / "big" / "rng_state.bin").write_bytes(b"state")
    (path / name).symlink_to(tmp_path / "big" / name)

    with pytest.raises(InputError) as caught:
        kept(workspace, path, copy=copy)

    said = f"`{path / name}` is a link to a directory, or to what is missing or outside the checkpoint"
    assert caught.value.message == said
    assert caught.value.hint == "replace the link with a copy of what it points to, then run again"
    assert workspace.store.read().kept == ()


def test_a_part_that_became_a_link_is_no_unchanged_checkpoint(workspace: Workspace, tmp_path: Path) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    kept(workspace, path)
    (path / "optimizer").symlink_to(tmp_path)
    (change,) = changes(workspace)
    assert change.path == "runs/a/step-100"
    assert change.what.startswith(f"unreadable: `{path / 'optimizer'}` is a link")


def test_a_link_to_a_file_of_the_same_checkpoint_is_kept_with_its_bytes(workspace: Workspace) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    (path / "same").symlink_to("__0_0.distcp")
    keeping = kept(workspace, path, copy=True)
    assert keeping.files == 3
    assert changes(workspace) == ()


def test_a_copy_in_the_workspace_outlives_the_original(workspace: Workspace) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    before = contents(path)
    keeping = kept(workspace, path, copy=True)
    assert keeping.kept.copy is not None
    copy = workspace.directory / keeping.kept.copy
    assert contents(copy) == before == contents(path)

    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    assert contents(copy) == before
    assert changes(workspace) == (KeptChange("runs/a/step-100", "", "missing"),)


@pytest.mark.parametrize("copy", [False, True])
def test_changed_bytes_do_not_become_what_was_kept(workspace: Workspace, *, copy: bool) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    first = kept(workspace, path, copy=copy).kept
    (path / "notes").write_text("a note")

    with pytest.raises(NothingSuits) as caught:
        kept(workspace, path)

    assert caught.value.message == "`runs/a/step-100` has changed since it was kept: notes added"
    assert caught.value.hint == (
        "run `torchenv checkpoints verify runs/a/step-100`; to keep it as it is now, first run"
        " `torchenv checkpoints keep --release runs/a/step-100`"
    )
    assert workspace.store.read().kept == (first,)

    release(str(path), workspace.store)
    again = kept(workspace, path)
    assert workspace.store.read().kept == (again.kept,)
    assert changes(workspace) == ()


def test_what_changed_is_refused_where_the_list_of_its_files_is_gone_too(workspace: Workspace) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    digest = kept(workspace, path).kept.digest or ""
    workspace.store.lifeboat_path(digest).unlink()
    assert kept(workspace, path).kept.digest == digest
    workspace.store.lifeboat_path(digest).unlink()
    (path / "notes").write_text("a note")
    with pytest.raises(NothingSuits) as caught:
        kept(workspace, path)
    assert caught.value.message == "`runs/a/step-100` has changed since it was kept"


def test_a_damaged_copy_is_made_anew_and_an_intact_one_is_left(workspace: Workspace) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    copied = kept(workspace, path, copy=True).kept.copy
    assert copied is not None
    release(str(path), workspace.store)
    assert not kept(workspace, path, copy=True).carried

    shard = workspace.directory / copied / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    release(str(path), workspace.store)
    again = kept(workspace, path, copy=True)

    assert again.carried
    assert again.kept.copy == copied
    assert contents(workspace.directory / copied) == contents(path)
    assert changes(workspace) == ()


@pytest.mark.parametrize("inside", ["", "kept", "../step-100/a/b"])
def test_no_copy_is_written_into_its_original(workspace: Workspace, inside: str) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    before = contents(path)
    with pytest.raises(InputError) as caught:
        keep(
            str(path),
            workspace.store,
            copy=False,
            copy_to=str(path / inside),
            system="linux",
            progress=lambda *_: None,
        )
    assert caught.value.message == f"a copy cannot be inside its original, `{path}`"
    assert contents(path) == before
    assert workspace.store.read().kept == ()


def test_only_a_complete_checkpoint_can_be_kept(workspace: Workspace) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-nometa")
    with pytest.raises(NothingSuits) as raised:
        kept(workspace, path)
    assert str(raised.value) == f"{path} cannot be kept: no .metadata: the save did not finish"
    (workspace.directory / "empty").mkdir()
    with pytest.raises(InputError) as wrong:
        kept(workspace, workspace.directory / "empty")
    assert str(wrong.value) == f"`{workspace.directory}/empty` holds no checkpoint"


def test_a_list_of_files_that_someone_edited_proves_nothing(workspace: Workspace) -> None:
    path = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    digest = kept(workspace, path).kept.digest or ""
    listing = workspace.store.lifeboat_path(digest)
    listing.write_text(listing.read_text().replace('"bytes": ', '"bytes": 1'))
    with pytest.raises(WorkspaceError) as raised:
        changes(workspace)
    assert str(raised.value) == f"`{listing}` is not the list of files recorded for `runs/a/step-100`"


def test_what_is_not_kept_cannot_be_verified_or_released(workspace: Workspace) -> None:
    path = str(workspace.directory / "runs" / "b")
    for act in (lambda: changes(workspace, Path(path)), lambda: release(path, workspace.store)):
        with pytest.raises(InputError) as raised:
            act()
        assert str(raised.value) == "`runs/b` is not kept"


@pytest.mark.parametrize("copy", [False, True])
def test_what_changes_while_it_is_read_is_not_kept(workspace: Workspace, *, copy: bool) -> None:
    step = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")

    def grow(done: int, total: int) -> None:
        (step / "__1_0.distcp").write_bytes(b"more")

    with pytest.raises(NothingSuits) as raised:
        keep(str(step), workspace.store, copy=copy, system="linux", progress=grow)
    assert str(raised.value) == f"{step} changed while it was read"
    assert workspace.store.read().kept == ()


def test_keeping_again_without_a_copy_forgets_no_copy(workspace: Workspace) -> None:
    step = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    copied = kept(workspace, step, copy=True).kept.copy
    assert copied is not None
    assert kept(workspace, step).kept.copy == copied
    (workspace.directory / copied / ".metadata").unlink()
    assert changes(workspace) == (KeptChange(copied, ".metadata", "missing"),)


def test_a_later_save_to_the_same_path_changes_no_copy_and_is_told(workspace: Workspace) -> None:
    step = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")
    copied = kept(workspace, step, copy=True).kept.copy
    assert copied is not None
    before = contents(workspace.directory / copied)
    with (step / "__0_0.distcp").open("r+b") as file:
        file.write(b"of a later step")
    assert contents(workspace.directory / copied) == before
    assert changes(workspace) == (KeptChange("runs/a/step-100", "__0_0.distcp", "changed"),)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_a_name_forges_no_verdict_and_reaches_no_terminal(workspace: Workspace) -> None:
    name = "step-8\nruns-b: unchanged\x1b[2J"
    path = save(workspace.directory / "runs" / name, "dcp-2.14.1")
    kept(workspace, path, copy=True)
    for note in (None, "a\nb"):
        if note:
            (path / note).write_text("a note")
        verified, found = verify((), workspace.store, lambda *_: None)
        lines = describe_verified(verified, found).splitlines()
        assert all(line.isprintable() for line in lines)
        assert "runs-b: unchanged" not in lines
        assert len(lines) == (2 if note else 1)


def test_what_is_being_written_is_neither_kept_nor_copied(workspace: Workspace) -> None:
    workspace.built()
    step = save(workspace.directory / "runs" / "a" / "step-200", "dcp-2.15.0")
    (step / ".metadata").rename(step / ".metadata.tmp")
    for path in step.iterdir():
        os.utime(path)
    with pytest.raises(NothingSuits) as caught:
        kept(workspace, step)
    assert "it may still be being written" in caught.value.message
    assert caught.value.hint == "keep it once its save is finished"
    with pytest.raises(NothingSuits) as refused:
        downgrade(str(step), DowngradeTarget(torch="2.14"), progress=lambda *_: None)
    assert refused.value.message.startswith(f"{step} is being written: ")
