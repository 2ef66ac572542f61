"""A copy is proved by two releases of torch, and another form of a save is verified tensor by tensor."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.checkpoints.support import archive, call
from tests.support.checkpoints import contents, save
from tests.support.workspace import Workspace

from torchenv.actions.downgrade import Copied, DowngradeTarget, downgrade
from torchenv.actions.lifeboat import hash_files
from torchenv.actions.read_save import CopyProof, SaveForm, convert, prove_copy
from torchenv.errors import InputError, NothingSuits, ToolFailed, WorkspaceError
from torchenv.storage import place
from torchenv.system.disk import Disk
from torchenv.system.process import Command, Completed

OLD = DowngradeTarget(torch="2.14", python="3.11.7", system="linux")
TENSORS: Mapping[str, bytes] = {"w": struct.pack("<3f", 1, 2, 3), "empty": b""}


class Torch:
    """Answers as the script does in an environment, and writes what it would; `loaded` goes by the path."""

    def __init__(self, loaded: Mapping[str, Mapping[str, bytes]] | None = None, spoil: bytes = b"") -> None:
        self.loaded = loaded or {}
        self.spoil = spoil
        self.commands: list[tuple[str, ...]] = []

    def __call__(self, command: Command, *, timeout: float | None = None) -> Completed:
        del timeout
        python, *_, what, path = command.argv[: 4 + 2]
        self.commands.append((python, what, path))
        tensors = self.loaded.get(path, TENSORS)
        if len(command.argv) > 6:
            self.write(Path(command.argv[6]), tensors)
        digests = {
            name: ["float32", [len(data) // 4], hashlib.sha256(data).hexdigest()]
            for name, data in tensors.items()
        }
        answer = {"torch": "2.15.0" if "new" in python else "2.14.1", "tensors": digests, "objects": ["lr"]}
        return Completed(command, 0, json.dumps(answer), "")

    def write(self, target: Path, tensors: Mapping[str, bytes]) -> None:
        header, at = {}, 0
        for name, data in tensors.items():
            header[name] = {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [at, at + len(data)]}
            at += len(data)
        text = json.dumps(header).encode()
        data = b"".join(tensors.values())
        data = self.spoil + data[len(self.spoil) :]
        target.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture
def source(workspace: Workspace) -> Path:
    """A save in the new form, in a workspace with torch 2.14.1 and 2.15.0."""
    workspace.adopted(workspace.directory / "old")
    workspace.adopted(workspace.directory / "new", "2.15.0+cu132")
    return save(workspace.directory / "runs" / "a" / "step-200", "dcp-2.15.0")


def prove(workspace: Workspace, source: Path, torch: Torch) -> tuple[Copied, CopyProof]:
    before = hash_files(place(source), lambda *_: None)
    copied = downgrade(str(source), OLD, progress=lambda *_: None)
    return copied, prove_copy(copied, before, OLD, workspace.store, torch)


def change(
    workspace: Workspace,
    source: Path,
    torch: Torch,
    form: SaveForm = "safetensors",
    target: Path | None = None,
) -> Path:
    converted = convert(
        str(source), form, workspace.store, target=str(target) if target else None, system="linux", run=torch
    )
    return Path(converted.target)


def test_each_is_loaded_where_it_is_read_and_every_tensor_is_compared(
    workspace: Workspace, source: Path
) -> None:
    torch = Torch()
    copied, proof = prove(workspace, source, torch)
    assert proof == CopyProof(
        copy=copied.copy, original_torch="2.15.0", copy_torch="2.14.1", tensors=2, differences=()
    )
    assert [(Path(python).parents[1].name, path) for python, _, path in torch.commands] == [
        ("new", str(source)),
        ("old", copied.copy),
    ]


def test_a_tensor_that_differs_and_an_original_that_changed_are_named(
    workspace: Workspace, source: Path
) -> None:
    copy = str(workspace.directory / "runs" / "a-for-2.14" / "step-200")
    other = Torch({copy: {"w": struct.pack("<3f", 1, 2, 4), "empty": b""}})
    before = hash_files(place(source), lambda *_: None)
    copied = downgrade(str(source), OLD, progress=lambda *_: None)
    with (source / "__0_0.distcp").open("r+b") as file:
        file.write(b"of a later step")
    proof = prove_copy(copied, before, OLD, workspace.store, other)
    assert proof.differences == ("w", "the original's __0_0.distcp changed")


def test_without_the_target_environment_nothing_can_be_proved(workspace: Workspace) -> None:
    workspace.adopted(workspace.directory / "new", "2.15.0+cu132")
    source = save(workspace.directory / "runs" / "a" / "step-200", "dcp-2.15.0")
    with pytest.raises(NothingSuits) as raised:
        prove(workspace, source, Torch())
    assert str(raised.value) == "no environment here has torch 2.14 to prove the copy with"
    assert raised.value.hint == "make one with `torchenv create 2.14`"


def test_a_save_is_written_in_another_form_and_read_back(workspace: Workspace, source: Path) -> None:
    before = contents(source)
    target = change(workspace, source, Torch())
    assert target == source.with_name("step-200.safetensors")
    assert sorted(path.name for path in target.parent.iterdir()) == ["step-200", "step-200.safetensors"]
    assert contents(source) == before
    with pytest.raises(InputError) as raised:
        change(workspace, source, Torch())
    assert str(raised.value) == f"`{target}` already exists"


def test_what_does_not_hold_what_was_written_is_not_left_there(workspace: Workspace, source: Path) -> None:
    target = workspace.directory / "out" / "model.safetensors"
    with pytest.raises(ToolFailed) as raised:
        change(workspace, source, Torch(spoil=b"\x01"), target=target)
    assert str(raised.value) == f"`{target}` does not hold what was written to it: w"
    assert list(target.parent.iterdir()) == []


def test_what_appears_at_the_goal_meanwhile_stays(workspace: Workspace, source: Path) -> None:
    target = workspace.directory / "out" / "model.safetensors"

    class Meanwhile(Torch):
        def write(self, target: Path, tensors: Mapping[str, bytes]) -> None:
            super().write(target, tensors)
            (target.parent / "model.safetensors").write_text("of another")

    with pytest.raises(InputError) as raised:
        change(workspace, source, Meanwhile(), target=target)
    assert str(raised.value) == f"`{target}` already exists"
    assert target.read_text() == "of another"
    assert list(target.parent.iterdir()) == [target]


def test_a_link_that_leads_nowhere_is_not_replaced(workspace: Workspace, source: Path) -> None:
    target = workspace.directory / "model.safetensors"
    target.symlink_to("away")
    with pytest.raises(InputError) as raised:
        change(workspace, source, Torch(), target=target)
    assert str(raised.value) == f"`{target}` is a broken link"
    assert target.readlink() == Path("away")


def test_a_place_that_takes_nothing_leads_to_another_place(workspace: Workspace, source: Path) -> None:
    # The workspace is not what is in the way.
    file = workspace.directory / "file"
    file.write_text("mine")
    with pytest.raises(WorkspaceError) as raised:
        change(workspace, source, Torch(), target=file / "model.safetensors")
    assert raised.value.hint == "name a place for the copy in another directory"
    with pytest.raises(WorkspaceError) as raised:
        downgrade(str(source), OLD, to=str(file / "step-200"), progress=lambda *_: None)
    assert raised.value.hint == "name a place for the copy in another directory"


def test_what_has_the_name_of_a_draft_stays(workspace: Workspace, source: Path) -> None:
    mine = workspace.directory / ".model.safetensors.torchenv-new"
    mine.write_text("mine")
    change(workspace, source, Torch(), target=workspace.directory / "model.safetensors")
    assert mine.read_text() == "mine"


@pytest.mark.skipif(os.name == "nt", reason="no file is locked there that another program writes")
def test_what_a_killed_run_left_is_cleared_by_the_next_and_not_what_is_being_written(
    workspace: Workspace, source: Path
) -> None:
    target = workspace.directory / "out" / "model.safetensors"
    target.parent.mkdir()
    left = target.with_name(f".{target.name}.{'0a' * 8}.torchenv-new")
    left.write_bytes(bytes(9))
    other = target.with_name(f".other.safetensors.{'0a' * 8}.torchenv-new")
    other.write_bytes(bytes(9))
    with Disk().hold_draft(target) as writing:
        assert not left.exists()
        change(workspace, source, Torch(), target=target)
        assert sorted(target.parent.iterdir()) == sorted([writing, other, target])
    assert sorted(target.parent.iterdir()) == [other, target]


@pytest.mark.parametrize("taken", [False, True])
def test_without_second_names_nothing_is_replaced_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, taken: bool
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    draft, goal = tmp_path / "draft", tmp_path / "goal"
    draft.write_text("new")
    if taken:
        goal.write_text("there")
    assert Disk().publish(draft, goal) is not taken
    assert goal.read_text() == ("there" if taken else "new")


def test_what_torch_wrote_itself_is_loaded_again(workspace: Workspace, source: Path) -> None:
    torch = Torch()
    assert change(workspace, source, torch, "torch-save").name == "step-200.pt"
    assert [what for _, what, _ in torch.commands] == ["torch-save", "digest"]


def test_no_torch_loads_what_could_run_code(workspace: Workspace, source: Path) -> None:
    evil = source.with_name("evil.pt")
    evil.write_bytes(archive(call("os", "system", "touch CANARY")))
    torch = Torch()
    with pytest.raises(NothingSuits) as raised:
        change(workspace, evil, torch)
    assert str(raised.value) == f"{evil} is not loaded: it names os.system, which could run code"
    assert torch.commands == []


@pytest.mark.parametrize(
    ("sample", "form", "said"),
    [
        ("2.15.0/ts_plain", "torch-save", "is a file of torch.save already"),
        ("2.15.0/jit", "safetensors", "is torchscript, not a save of tensors"),
        ("2.15.0/ts_numpy", "safetensors", "only with code of its own"),
    ],
)
def test_what_cannot_become_another_form_is_told_before_anything_is_loaded(
    workspace: Workspace, source: Path, sample: str, form: SaveForm, said: str
) -> None:
    (other,) = save(source.with_name("other"), sample).iterdir()
    torch = Torch()
    with pytest.raises((InputError, NothingSuits), match=said):
        change(workspace, other, torch, form, source.with_name("converted"))
    assert torch.commands == []
    assert not source.with_name("converted").exists()


def test_a_safetensors_file_becomes_one_of_torch_save_and_not_of_its_own_kind(
    workspace: Workspace, source: Path
) -> None:
    made = change(workspace, source, Torch(), target=source.with_name("model.safetensors"))
    with pytest.raises(InputError, match="is a safetensors file already"):
        change(workspace, made, Torch())
    assert change(workspace, made, Torch(), "torch-save") == source.with_name("model.pt")
