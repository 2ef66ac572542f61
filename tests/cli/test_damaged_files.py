"""Whatever is wrong with a file of a workspace, commands end with a code and without a traceback."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.terminal import Terminal
from tests.support.workspace import Workspace

COMMANDS = (
    ("status",),
    ("list",),
    ("show", "2"),
    ("show", "2", "--json"),
    ("history",),
    ("verify", "2"),
    ("checkpoints", "show"),
    ("plan", "2.15", "--backend", "cpu"),
)
SWITCHES = (("use", "1", "--force"), ("rollback",), ("upgrade", "--abort"))
FILES = (
    "manifest.toml",
    "checkpoints.json",
    "written",
    "identity",
    "current",
    "kept",
    "plans/2.json",
    "fingerprints/2.txt",
    "locks/pylock.2.toml",
    "lease",
    "upgrade.json",
    "lock",
    "index-answers.json",
    "envs",
    "plans",
    "locks",
    "fingerprints",
)


def delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    delete(path)
    (path / "inner").mkdir(parents=True)


def write(content: bytes) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        delete(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return put


def cut(path: Path) -> None:
    """Leave what a disk has of a file when its machine lost power."""
    if path.is_file():
        content = path.read_bytes()
        path.write_bytes(content[: len(content) * 2 // 3])


def make_unreadable(path: Path) -> None:
    if not os.path.lexists(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    path.chmod(0)


def make_loop(path: Path) -> None:
    delete(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path.name)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a directory": make_directory,
    "empty": write(b""),
    "rubbish": write(b"{[rubbish\n= 1"),
    "another document": write(b"[1, 2]\n"),
    "an object": write(b'{"schema": 3}\n'),
    "not UTF-8": write(b"\xff\xfe\x00\n"),
    "cut": cut,
    "unreadable": make_unreadable,
    "a link to itself": make_loop,
}


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    terminal = Terminal.within(tmp_path)
    workspace = Workspace(tmp_path)
    workspace.built()
    workspace.built("2.14.1+cu130")
    (tmp_path / "workspace").rename(terminal.workspace)
    terminal.environ["TORCHENV_HOME"] = str(terminal.workspace)
    assert terminal.type("use", "1", "--force").code == 0
    assert terminal.type("use", "2", "--force").code == 0
    return terminal


def refuse_defects(terminal: Terminal, name: str, words: tuple[str, ...]) -> None:
    ended = terminal.type(*words)
    assert "Traceback" not in ended.err, (name, words, ended.err)
    assert ended.code in {0, 1, 2, 3, 4, 5}, (name, words, ended.err)
    if ended.code == 5 and name in FILES:
        # What is wrong, where, and what to do.
        assert f"{terminal.workspace}/" in ended.err or name in ended.err, (name, words, ended.err)
        assert "\nhint: " in ended.err, (name, words, ended.err)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_of_a_workspace_ends_in_no_traceback(terminal: Terminal, damage: str) -> None:
    whole = terminal.cwd.parent / "whole"
    shutil.copytree(terminal.workspace, whole, symlinks=True)
    for name in FILES:
        DAMAGES[damage](terminal.workspace / name)
        for words in COMMANDS:
            refuse_defects(terminal, name, words)
        shutil.rmtree(terminal.workspace)
        shutil.copytree(whole, terminal.workspace, symlinks=True)
    for name in FILES:
        DAMAGES[damage](terminal.workspace / name)
    for words in SWITCHES:
        refuse_defects(terminal, "all", words)
