"""A workspace from a repository or from elsewhere is only read until the user accepts or names it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import venv
from pathlib import Path

import pytest
from tests.support.terminal import Terminal
from tests.support.workspace import Workspace

REFUSED = (
    ("use", "1"),
    ("rollback",),
    ("run", "--", "true"),
    ("activate",),
    ("kernel", "install"),
    ("smoke",),
    ("evaluate",),
    ("doctor",),
    ("doctor", "2"),
    ("doctor", ".torchenv/envs"),
    ("adopt", ".venv"),
    ("remove", "1"),
    ("prune",),
    ("restore", "1"),
    ("create", "2.15", "--backend", "cpu"),
    ("sync",),
    ("upgrade",),
    ("commit",),
    ("catalogue", "update"),
    ("checkpoints", "scan", "."),
    ("checkpoints", "keep", "."),
)
READ = (
    *(("list",), ("history",), ("show", "2"), ("status",), ("verify", "2"), ("diff", "1", "2")),
    ("upgrade", "2.15", "--check", "--offline"),
    ("doctor", "../elsewhere"),
)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """Put a workspace with two environments, the second active, in a project that is a clone."""
    terminal = Terminal.within(tmp_path)
    workspace = Workspace(tmp_path)
    workspace.built()
    workspace.built("2.14.1+cu130")
    assert terminal.type("--root", tmp_path / "workspace", "use", "2", "--force").code == 0
    (tmp_path / "workspace").rename(terminal.workspace)
    # Whoever made it was another user.
    for path in (tmp_path / "home").glob(".local/state/torchenv/*/*"):
        path.unlink()
    return terminal


def list_files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_a_workspace_from_elsewhere_is_neither_changed_nor_run_from(
    terminal: Terminal, words: tuple[str, ...]
) -> None:
    before = list_files(terminal.workspace)
    ended = terminal.type(*words)
    assert ended.code == 5, ended.err
    assert f"error: workspace `{terminal.workspace}` is only read: it was made at `" in ended.err
    assert f"with `torchenv trust {terminal.workspace}`\n" in ended.err
    assert list_files(terminal.workspace) == before


@pytest.mark.parametrize("words", READ, ids=" ".join)
def test_a_workspace_from_elsewhere_can_be_looked_at(terminal: Terminal, words: tuple[str, ...]) -> None:
    venv.create(terminal.cwd.parent / "elsewhere", symlinks=True)
    before = list_files(terminal.workspace)
    ended = terminal.type(*words)
    # Whatever suits this machine.
    assert ended.code in {0, 1, 3 if words[0] == "upgrade" else 0}, ended.err
    assert "trust" not in ended.err
    assert list_files(terminal.workspace) == before


def test_the_command_of_the_hint_accepts_it(terminal: Terminal) -> None:
    refused = terminal.type("use", "1", "--force")
    (command,) = re.findall(r"with `(torchenv trust .*)`", refused.err)
    assert terminal.type(*shlex.split(command)[1:]).code == 0
    assert terminal.type("use", "1", "--force").code == 0


def test_the_project_may_be_named_and_what_holds_no_workspace_is_refused(terminal: Terminal) -> None:
    assert terminal.type("trust", terminal.cwd).code == 0
    assert terminal.type("use", "1", "--force").code == 0
    assert terminal.type("trust", terminal.cwd.parent).error[0] == 2


def test_naming_it_is_trust(terminal: Terminal) -> None:
    assert terminal.type("--root", ".torchenv", "use", "1", "--force").code == 0
    assert terminal.type("use", "2", "--force", TORCHENV_HOME=".torchenv").code == 0


def test_a_project_of_ones_own_works_after_it_was_renamed(terminal: Terminal) -> None:
    assert terminal.type("--root", ".torchenv", "use", "1", "--force").code == 0
    terminal.cwd = terminal.cwd.rename(terminal.cwd.with_name("renamed"))
    ended = terminal.type("use", "2", "--force")
    assert ended.code == 0, ended.err


def test_one_that_came_with_a_repository_is_refused_where_it_was_made_too(terminal: Terminal) -> None:
    assert terminal.type("--root", ".torchenv", "use", "1", "--force").code == 0
    assert terminal.type("use", "2", "--force").code == 0
    for words in (("init", "-q"), ("add", "-f", ".torchenv/manifest.toml")):
        subprocess.run(["git", "-C", terminal.cwd, *words], check=True, capture_output=True, timeout=60)
    ended = terminal.type("rollback")
    assert ended.code == 5
    assert f"is only read: it came with the repository `{terminal.cwd}`" in ended.err


def test_a_user_without_a_place_for_it_is_told_to_name_the_workspace(terminal: Terminal) -> None:
    (terminal.cwd / "file").touch()
    ended = terminal.type("trust", ".", XDG_STATE_HOME=str(terminal.cwd / "file"))
    assert ended.code == 5
    assert f"name the workspace instead: `torchenv --root {terminal.workspace} status`" in ended.err


@pytest.mark.parametrize("words", [("run", "--", "python", "x"), ("doctor",), ("use", "1", "--force")])
@pytest.mark.parametrize("root", [None, ".torchenv", "/proc/self/cwd/.torchenv", "where it is"])
def test_an_unpacked_archive_whose_manifest_hides_where_it_was_made_runs_nothing(
    terminal: Terminal, root: str | None, words: tuple[str, ...]
) -> None:
    manifest = terminal.workspace / "manifest.toml"
    # Unpacked, and who packed it may have guessed where.
    shutil.copytree(terminal.workspace, terminal.cwd / "unpacked", symlinks=True)
    shutil.rmtree(terminal.workspace)
    (terminal.cwd / "unpacked").rename(terminal.workspace)
    line = "" if root is None else f'root = "{terminal.workspace if root == "where it is" else root}"\n'
    text, count = re.subn(r"(?m)^root = .*\n", line, manifest.read_text())
    assert count == 1
    ran = terminal.cwd / "ran"
    evil = terminal.cwd / "evil" / "bin" / "python"
    evil.parent.mkdir(parents=True)
    evil.write_text(f"#!/bin/sh\necho ran > {shlex.quote(str(ran))}\n")
    evil.chmod(0o755)
    (evil.parent.parent / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.0\n")
    text = re.sub(r"(?m)^(identity|fingerprint) = .*\n", "", text).replace('"built"', '"adopted"')
    manifest.write_text(re.sub(r'(?m)^path = ".*"$', 'path = "evil"', text))
    # In a process of its own, whose directory is the project, and which `run` replaces.
    ended = terminal.start(*words)
    assert ended.code == 5, ended.err
    assert "is only read: it " in ended.err
    assert f"with `torchenv trust {terminal.workspace}`\n" in ended.err
    assert not ran.exists()
    assert terminal.type("trust", ".").code == 0
    assert "is only read" not in terminal.start(*words).err
    # What was refused would have run it.
    assert ran.exists() or words[0] != "run"
