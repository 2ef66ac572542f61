"""A save from before torch 2.7 is copied with the key that newer optimizers ask for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.checkpoints import contents, save
from tests.support.workspace import Workspace

from torchenv.actions.repair import ADDED_FILE, Optimizer, Repaired, repair
from torchenv.checkpoints import inspect
from torchenv.errors import InputError, NothingSuits, ToolFailed
from torchenv.storage.tree import LocalTree
from torchenv.system.process import Command, Completed

KEY = b"decoupled_weight_decay"
NAME = "optim.param_groups.0.decoupled_weight_decay"


class Torch:
    """Does as the scripts do in an environment: adds the key, and digests what is there."""

    def __init__(self, *, loses: bool = False) -> None:
        self.loses = loses
        self.values: list[str] = []

    def __call__(self, command: Command, *, timeout: float | None = None) -> Completed:
        del timeout
        script, *words = command.argv[3:]
        if Path(script).name == "repair_save.py":
            source, directory, value = words
            self.values.append(value)
            metadata = (Path(source) / ".metadata").read_bytes()
            (Path(directory) / ".metadata").write_bytes(metadata.replace(b"decoupled_weight_decax", KEY))
            (Path(directory) / ADDED_FILE).write_bytes(b"a value")
            return Completed(command, 0, json.dumps([NAME]), "")
        is_copy = (Path(words[1]) / ADDED_FILE).exists()
        tensors = {} if is_copy and self.loses else {"w": ["float32", [3], "00"]}
        objects = ["optim.param_groups.0.lr", *([NAME] if is_copy else [])]
        answer = {"torch": "2.14.1", "tensors": tensors, "objects": objects}
        return Completed(command, 0, json.dumps(answer), "")


@pytest.fixture
def source(workspace: Workspace) -> Path:
    """A save whose Adam group goes by other names, in a workspace with torch 2.14.1."""
    workspace.adopted(workspace.directory / "old")
    step = save(workspace.directory / "runs" / "a" / "step-100", "2.14.1/dcp_modelopt")
    metadata = step / ".metadata"
    metadata.write_bytes(metadata.read_bytes().replace(KEY, b"decoupled_weight_decax"))
    return step


def repaired(workspace: Workspace, source: Path, torch: Torch, optimizer: Optimizer = "adamw") -> Repaired:
    return repair(
        str(source), optimizer, workspace.store, system="linux", run=torch, progress=lambda *_: None
    )


def lacks_key(path: Path) -> bool:
    checkpoint = inspect(LocalTree(path))
    assert checkpoint is not None
    return any(note.code == "optimizer-keys" for note in checkpoint.reader.because)


@pytest.mark.parametrize(("optimizer", "value"), [("adamw", "true"), ("adam", "false")])
def test_the_copy_holds_the_key_and_all_else(
    workspace: Workspace, source: Path, optimizer: Optimizer, value: str
) -> None:
    before = contents(source)
    torch = Torch()
    made = repaired(workspace, source, torch, optimizer)
    copy = workspace.directory / "runs" / "a-repaired" / "step-100"
    assert (made.copy, made.added, torch.values) == (str(copy), (NAME,), [value])
    assert (lacks_key(source), lacks_key(copy)) == (True, False)
    assert contents(source) == before
    assert contents(copy).keys() - before.keys() == {ADDED_FILE}
    with pytest.raises(InputError):
        repaired(workspace, source, torch)


def test_a_copy_that_lost_something_is_said(workspace: Workspace, source: Path) -> None:
    with pytest.raises(ToolFailed):
        repaired(workspace, source, Torch(loses=True))


def test_where_nothing_is_missing_nothing_is_made(workspace: Workspace) -> None:
    workspace.adopted(workspace.directory / "old")
    source = save(workspace.directory / "runs" / "a" / "step-100", "2.14.1/dcp_modelopt")
    with pytest.raises(NothingSuits) as raised:
        repaired(workspace, source, Torch())
    assert str(raised.value) == f"`{source}` lacks nothing that newer releases of torch ask for"
