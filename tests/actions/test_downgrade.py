"""A downgraded copy is whole or not there, says how it came about, and never touches the original."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.checkpoints.support import archive
from tests.support.checkpoints import contents, save
from tests.support.workspace import Workspace

from torchenv.actions.downgrade import Copied, DowngradeTarget, downgrade, downgrade_runs
from torchenv.checkpoints import inspect
from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.scan.runs import runs_of
from torchenv.checkpoints.steps import is_copy
from torchenv.errors import InputError, NothingSuits, ToolFailed
from torchenv.storage import Transfer, place
from torchenv.storage.tree import LocalTree
from torchenv.workspace.records import Environment

OLD = DowngradeTarget(torch="2.14", python="3.11.7", system="linux")


def copied(
    source: Path, target: DowngradeTarget = OLD, to: Path | None = None, *, link: bool = False
) -> Copied:
    return downgrade(str(source), target, to=str(to) if to else None, link=link, progress=lambda *_: None)


def inode(path: Path) -> int:
    return path.stat().st_ino


def oldest_reader(path: Path) -> str | None:
    checkpoint = inspect(LocalTree(path))
    assert checkpoint is not None
    assert checkpoint.state == "complete"
    return checkpoint.reader.torch.oldest


def test_the_copy_is_readable_and_only_its_metadata_is_new(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    before = contents(source)

    made = copied(source)

    copy = tmp_path / "a-for-2.14" / "step-200"
    assert (made.copy, made.made, made.files) == (str(copy), True, 1)
    assert oldest_reader(copy) == "2.4"
    assert contents(source) == before
    assert contents(copy)["__0_0.distcp"] == before["__0_0.distcp"]
    assert [path.name for path in source.parent.iterdir()] == ["step-200"]


def test_it_is_said_how_the_tensor_files_came_there(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    apart, linked = copied(source), copied(source, to=tmp_path / "linked", link=True)
    shared = inode(source / "__0_0.distcp") == inode(tmp_path / "linked" / "__0_0.distcp")
    # Where the file system can clone, nothing is shared and nothing is copied.
    assert linked.carried == ({Transfer.LINKED} if shared else {Transfer.CLONED})
    assert apart.carried <= {Transfer.COPIED, Transfer.CLONED}


def test_a_second_save_to_the_same_path_leaves_the_copy_as_it_is(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    copy = Path(copied(source).copy)
    before = contents(copy)
    # torch opens the files that are there and writes into them.
    with (source / "__0_0.distcp").open("r+b") as file:
        file.write(b"of a later step")
    assert contents(copy) == before
    assert not {inode(path) for path in source.iterdir()} & {inode(path) for path in copy.iterdir()}


@pytest.mark.parametrize("name", ["optimizer", "rng_state.bin"])
def test_a_link_that_the_copy_would_leave_out_is_named(tmp_path: Path, name: str) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    (tmp_path / "big" / "optimizer").mkdir(parents=True)
    (tmp_path / "big" / "rng_state.bin").write_bytes(b"state")
    (source / name).symlink_to(tmp_path / "big" / name)

    with pytest.raises(InputError) as caught:
        copied(source)

    assert caught.value.message.startswith(f"`{source / name}` is a link to a directory")
    assert not (tmp_path / "a-for-2.14").exists()


def test_without_room_for_a_copy_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    monkeypatch.setattr("torchenv.storage.local.clone", lambda *_: False)
    monkeypatch.setattr("torchenv.system.disk.Disk.free_space", lambda *_: 3)
    with pytest.raises(ToolFailed) as raised:
        copied(source)
    assert str(raised.value) == f"`{tmp_path}/a-for-2.14/step-200` needs 2.8 KiB, and 3 bytes are free"
    assert [path.name for path in source.parent.iterdir()] == ["step-200"]


def test_a_second_time_makes_nothing(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    copied(source)
    before = contents(tmp_path)
    again = copied(source)
    assert (again.made, again.why) == (False, "already copied")
    already = copied(tmp_path / "a-for-2.14" / "step-200")
    assert (already.made, already.why) == (False, "torch 2.14 reads it as it is")
    assert contents(tmp_path) == before


def test_what_is_in_its_place_is_never_replaced(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    taken = save(tmp_path / "taken", "dcp-2.14.1")
    before = contents(taken)
    with pytest.raises(InputError) as raised:
        copied(source, to=taken)
    assert str(raised.value) == f"`{taken}` already exists and is not a copy of `{source}` for torch 2.14"
    assert contents(taken) == before


@pytest.mark.parametrize("inside", ["copy", "../alias/copy", "."])
def test_nothing_is_written_into_the_original(tmp_path: Path, inside: str) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    (tmp_path / "a" / "alias").symlink_to("step-200")
    before = contents(source)
    with pytest.raises(InputError) as raised:
        copied(source, to=source / inside)
    assert str(raised.value) == f"a copy cannot be inside its original, `{source}`"
    assert contents(source) == before


@pytest.mark.skipif(os.name != "posix", reason="locks the directory")
def test_two_runs_never_write_one_copy(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    said: list[str] = []

    def second(done: int, total: int) -> None:
        try:
            copied(source)
        except InputError as error:
            said.append(error.message)

    assert downgrade(str(source), OLD, progress=second).made
    assert set(said) == {f"another run is writing {tmp_path}/a-for-2.14/step-200"}
    assert oldest_reader(tmp_path / "a-for-2.14" / "step-200") == "2.4"


def test_a_disk_that_is_full_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")

    def full(*_: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("torchenv.storage.local.clone", full)
    with pytest.raises(OSError, match="No space left") as raised:
        copied(source)
    assert raised.value.filename == f"{tmp_path}/a-for-2.14/step-200"
    assert [path.name for path in source.parent.iterdir()] == ["step-200"]


@pytest.mark.parametrize("written", ["v2.14", " 2.14", "2.14+cu126", "2.14rc1"])
def test_a_copy_goes_by_the_plain_version(workspace: Workspace, written: str) -> None:
    assert DowngradeTarget.of(written, workspace.store.read(), "linux").torch == "2.14"


def test_a_run_without_a_complete_save_is_told(tmp_path: Path) -> None:
    save(tmp_path / "a" / "step-200", "dcp-truncmeta")
    assert whole_runs(tmp_path, newest=True) == ((), (f"{tmp_path}/a: none of its saves is complete",))


def test_what_a_stopped_run_left_is_in_nobodys_way(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    left = tmp_path / "a-for-2.14" / ".step-200.torchenv-new"
    left.mkdir(parents=True)
    (left / "__0_0.distcp").write_bytes(b"half")
    (left / ".torchenv-draft").touch()
    made = copied(source)
    assert sorted(path.name for path in Path(made.copy).parent.iterdir()) == ["step-200"]
    assert not (Path(made.copy) / ".torchenv-draft").exists()


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_not_a_draft_of_torchenv_stays(tmp_path: Path, *, is_link: bool) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    mine = tmp_path / "a-for-2.14" / ".step-200.torchenv-new"
    mine.parent.mkdir()
    content = tmp_path / "away" if is_link else mine
    content.mkdir()
    (content / "notes.txt").write_text("mine")
    if is_link:
        mine.symlink_to(content)
    assert copied(source).made
    assert sorted(path.name for path in mine.parent.iterdir()) == [mine.name, "step-200"]
    assert (mine / "notes.txt").read_text() == "mine"


def test_a_copy_that_cannot_be_finished_leaves_nothing(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        downgrade(str(source), OLD, progress=stop)
    assert [path.name for path in source.parent.iterdir()] == ["step-200"]


@pytest.mark.parametrize(("python", "plain"), [("3.11.7", True), ("3.13.1", False), (None, True)])
def test_the_path_of_python_3_13_is_rewritten_where_the_target_needs_it(
    tmp_path: Path, python: str | None, *, plain: bool
) -> None:
    source = save(tmp_path / "a" / "step-1", "2.15.0-py313/dcp_plain")
    made = copied(source, DowngradeTarget(torch="2.14", python=python))
    checkpoint = inspect(LocalTree(Path(made.copy)))
    assert checkpoint is not None
    assert (checkpoint.reader.python_min is None) is plain


def test_a_copy_for_a_new_torch_on_an_old_python_is_made_for_the_path_alone(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "step-1", "2.15.0-py313/dcp_plain")
    assert (
        copied(source, DowngradeTarget(torch="2.15", python="3.13.1")).why == "torch 2.15 reads it as it is"
    )
    assert copied(source, DowngradeTarget(torch="2.15", python="3.11.7")).made


def test_where_more_than_strides_is_in_the_way_nothing_is_made_and_the_reason_is_given(
    tmp_path: Path,
) -> None:
    source = save(tmp_path / "a" / "step-1", "2.15.0/dcp_zstd")
    with pytest.raises(NothingSuits) as raised:
        copied(source, DowngradeTarget(torch="2.6", python="3.11.7"))
    assert str(raised.value) == (
        f"torch 2.6 cannot read a copy of {source} either: its files are compressed by a transform,"
        " which needs zstandard or pyzstd as well"
    )
    assert [path.name for path in source.parent.iterdir()] == ["step-1"]


def test_a_broken_checkpoint_is_not_copied(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "step-1", "dcp-truncmeta")
    with pytest.raises(NothingSuits) as raised:
        copied(source)
    assert str(raised.value) == f"{source} is corrupt: .metadata: the pickle ends inside a frame"


def test_what_is_no_distributed_checkpoint_is_refused(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "none", f"`{tmp_path}/none` does not exist"),
        (tmp_path, f"`{tmp_path}` is not a checkpoint"),
    ):
        with pytest.raises(InputError) as raised:
            copied(path)
        assert str(raised.value) == message


def whole_runs(root: Path, *, newest: bool) -> tuple[tuple[Copied, ...], tuple[str, ...]]:
    return downgrade_runs(
        str(root),
        OLD,
        newest=newest,
        to=None,
        link=False,
        progress=lambda *_: None,
        say=lambda _: None,
    )


def test_the_newest_of_every_run_or_all_of_them_are_copied(tmp_path: Path) -> None:
    save(tmp_path / "a" / "step-100", "dcp-2.14.1")
    save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    save(tmp_path / "a" / "step-300", "dcp-2.15.0")
    save(tmp_path / "a" / "step-400", "dcp-nometa")
    save(tmp_path / "b" / "step-5", "dcp-2.15.0")

    newest, refused = whole_runs(tmp_path, newest=True)
    assert ([Path(copy.copy).name for copy in newest], refused) == (
        ["step-300", "step-5"],
        (),
    )
    both, _ = whole_runs(tmp_path, newest=False)
    assert [Path(copy.copy).name for copy in both if copy.made] == ["step-200"]


def test_a_copy_is_a_whole_save_under_a_name_that_its_framework_finds(tmp_path: Path) -> None:
    # As Accelerate writes it with FSDP: what else a resume needs lies beside the distributed parts.
    source = tmp_path / "checkpoints" / "checkpoint_500"
    save(source / "pytorch_model_fsdp_0", "dcp-2.15.0")
    save(source / "optimizer_0", "dcp-2.15.0")
    for name in ("scheduler.bin", "random_states_0.pkl", "notes/context.json"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(archive(b"\x80\x02}q\x00."))
    before = contents(source)

    made = copied(source)

    copy = tmp_path / "checkpoints-for-2.14" / "checkpoint_500"
    assert (made.copy, made.made, made.files) == (str(copy), True, 5)
    after = contents(copy)
    assert after.keys() == before.keys() == contents(source).keys()
    assert {name for name in after if after[name] != before[name]} == {
        "pytorch_model_fsdp_0/.metadata",
        "optimizer_0/.metadata",
    }
    assert oldest_reader(copy / "optimizer_0") == "2.4"
    assert contents(source) == before
    assert copied(source).why == "already copied"


def test_a_part_that_cannot_be_made_readable_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    source = tmp_path / "a" / "checkpoint-500"
    save(source / "model", "dcp-2.15.0")
    save(source / "optimizer", "2.15.0/dcp_zstd")
    with pytest.raises(NothingSuits) as raised:
        copied(source, DowngradeTarget(torch="2.6", python="3.11.7"))
    assert str(raised.value).startswith(f"torch 2.6 cannot read a copy of {source}/optimizer either: ")
    assert not (tmp_path / "a-for-2.6").exists()


def test_a_copy_may_have_another_name_and_its_pointers_go_along(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "iter_0000200", "dcp-2.15.0")
    (tmp_path / "a" / "latest_checkpointed_iteration.txt").write_text("200")
    (tmp_path / "a" / "latest").write_text("iter_0000200\n")
    (tmp_path / "a" / "last_checkpoint").write_text("elsewhere")
    made = downgrade(str(source), OLD, name="iter_0000150", progress=lambda *_: None)
    copies = tmp_path / "a-for-2.14"
    assert made.copy == str(copies / "iter_0000150")
    assert {path.name: path.read_text() for path in copies.iterdir() if path.is_file()} == {
        "latest_checkpointed_iteration.txt": "150",
        "latest": "iter_0000150\n",
    }
    assert (tmp_path / "a" / "latest").read_text() == "iter_0000200\n"


def test_the_copies_of_a_run_are_saves_of_it_and_are_not_copied_again(tmp_path: Path) -> None:
    source = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    copied(source)
    (run,) = runs_of(scan([place(tmp_path)], None, lambda _: None), str)
    assert [save.name for save in run.saves] == ["../a-for-2.14/step-200", "step-200"]
    assert [is_copy(save.name) for save in run.saves] == [True, False]
    again, _ = whole_runs(tmp_path, newest=False)
    assert [(copy.source, copy.made) for copy in again] == [(str(source), False)]


def test_the_target_takes_the_python_of_the_environment_that_has_it(workspace: Workspace) -> None:
    old: Environment = workspace.adopted(workspace.directory / "old")
    manifest = workspace.store.read()
    assert DowngradeTarget.of("2.14", manifest, "linux").python == old.python.version
    assert DowngradeTarget.of("2.14.1", manifest, "linux").python == old.python.version
    assert DowngradeTarget.of("2.13", manifest, "linux").python is None
    with pytest.raises(InputError) as raised:
        DowngradeTarget.of("old", manifest, "linux")
    assert str(raised.value) == "`old` is not a version of torch"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_a_name_that_acts_on_a_terminal_is_escaped_in_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(InputError) as missing:
        copied(tmp_path / "step-8\nstep-9\x1b[2J")
    with pytest.raises(NothingSuits) as broken:
        copied(save(tmp_path / "a" / "step-8\n\x1b[2J", "dcp-nometa"))
    assert missing.value.message.isprintable()
    assert broken.value.message.isprintable()
