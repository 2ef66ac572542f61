"""What a newcomer meets on the second day: exit codes of one rule, quiet commands, figures that agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.terminal import Terminal
from tests.support.workspace import Workspace, write_venv

from torchenv.actions.diff import packages
from torchenv.actions.remove import Removed
from torchenv.actions.switch import use
from torchenv.render.status import describe_removed
from torchenv.workspace.records import Environment


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path)
    workspace.built("2.14.1+cu126")
    workspace.built("2.15.0+cu132")
    return workspace


@pytest.fixture
def plain(tmp_path: Path, workspace: Workspace) -> Terminal:
    """A terminal without an index, whose workspace is that of the test."""
    terminal = Terminal.within(tmp_path / "terminal")
    terminal.environ["TORCHENV_HOME"] = str(workspace.store.root)
    return terminal


# What the record does not allow is 3, and 5 is said of a disk that is not as the record has it.


@pytest.mark.parametrize(
    "words",
    ["show", "run -- true", "smoke", "verify", "activate", "kernel install", "add x", "drop x", "evaluate"],
)
def test_without_an_active_environment_a_command_ends_with_3_and_names_one(
    plain: Terminal, words: str
) -> None:
    ended = plain.type(*words.split())
    assert ended.error == (3, "error: no active environment\nhint: switch to one with `torchenv use 2`\n")


@pytest.mark.parametrize("words", ["add x", "drop x", "remove 1", "remove 1 --force"])
def test_changing_an_adopted_environment_ends_with_3(tmp_path: Path, words: str) -> None:
    terminal = Terminal.within(tmp_path / "terminal")
    write_venv(terminal.cwd / ".venv", {"torch": "2.14.1+cpu"})
    assert terminal.type("adopt", ".venv").code == 0
    assert terminal.type("use", "1").code == 0
    assert terminal.type(*words.split(), "--offline").code == 3


@pytest.mark.parametrize("words", ["use 1", "run -e 1 -- true", "verify 1", "smoke 1", "remove 1"])
def test_a_removed_environment_ends_with_3_and_one_that_is_gone_with_5(
    plain: Terminal, workspace: Workspace, words: str
) -> None:
    assert plain.type("remove", "1", "--offline").code == 0
    assert plain.type(*words.split()).code == 3


def test_an_environment_that_is_gone_from_the_disk_ends_with_5(plain: Terminal, workspace: Workspace) -> None:
    first = workspace.store.read().number(1)
    Path(first.path).rename(f"{first.path}-elsewhere")
    assert [plain.type(*words.split()).code for words in ("use 1", "run -e 1 -- true", "smoke 1")] == [5] * 3


# `-q` prints nothing but results asked for.


@pytest.mark.parametrize(
    "lines",
    [
        ("use 1 -q", "use 2 -q", "rollback -q", "use 2 -q", "remove 1 -q --force --offline"),
        ("prune -q --keep 0 --force",),
    ],
)
def test_a_quiet_command_that_acts_prints_nothing(plain: Terminal, lines: tuple[str, ...]) -> None:
    for line in lines:
        ended = plain.type(*line.split())
        assert (ended.code, ended.out, ended.err) == (0, "", ""), line


def test_what_is_asked_for_is_printed_quietly_too(plain: Terminal) -> None:
    assert plain.type("list", "-q").out.count("\n") == 2
    assert "would remove" in plain.type("prune", "-q", "--dry-run", "--keep", "0", "--force").out
    assert plain.type("use", "1", "-q", "--json").json["to"] == 1


# What a message says is so.


def test_an_environment_that_is_recorded_already_is_not_said_to_be_recorded(tmp_path: Path) -> None:
    terminal = Terminal.within(tmp_path / "terminal")
    venv = terminal.cwd / ".venv"
    write_venv(venv, {"torch": "2.14.1+cpu"})
    first, again = terminal.type("adopt", ".venv"), terminal.type("adopt", ".venv")
    assert first.err.startswith(f"recorded {venv} as environment 1 ")
    assert again.err.startswith(f"{venv} is already environment 1 ")
    assert (first.out, again.out) == ("1\n", "1\n")


def test_what_is_freed_is_told_in_the_figure_of_status(workspace: Workspace) -> None:
    environment = workspace.store.read().number(1)
    removed = Removed(environment=environment, freed=1 << 28, size=3 << 30)
    assert describe_removed(removed).startswith(
        f"removed environment {environment} (3.0 GiB, of which 0.2 GiB freed: uv's cache holds the rest)\n"
    )
    assert "(3.0 GiB freed)" in describe_removed(replace(removed, freed=3 << 30))


def test_a_removed_environment_keeps_the_label_of_its_torch_in_a_comparison(workspace: Workspace) -> None:
    def unlabel(environment: Environment) -> None:
        # As the default package index has it, where the label is inside the wheel alone.
        path = workspace.store.lock_path(environment.number)
        path.write_text(path.read_text("utf-8").replace("+cu126", ""), "utf-8")

    first = workspace.store.read().number(1)
    unlabel(first)
    store = workspace.store
    with store.hold("torchenv remove"):
        store.write(store.read().mark_removed(1))
    assert packages(store.read().number(1), store)["torch"] == "2.14.1+cu126"


def test_a_rollback_names_the_environment_that_there_is_and_no_release_that_nobody_wants(
    plain: Terminal, workspace: Workspace
) -> None:
    use("1", workspace.store, workspace.outside)
    ended = plain.type("rollback")
    other = workspace.store.read().number(2)
    assert ended.error == (
        3,
        (
            "error: no previous environment to roll back to\n"
            f"hint: switch to {other} with `torchenv rollback 2`\n"
        ),
    )
    assert plain.type("remove", "2", "--offline").code == 0
    assert "torchenv create" not in plain.type("rollback").err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("plan --bogus", "see `torchenv plan --help`"),
        ("plan --bakend cpu", "did you mean `--backend`?"),
        ("plan --verbos", "did you mean `--verbose`?"),
        ("plan --accept-gpu", "did you mean `--accept-cpu`?"),
        ("trust .", "see which workspace is used here with `torchenv status`"),
    ],
)
def test_a_hint_says_what_helps(plain: Terminal, words: str, hint: str) -> None:
    assert plain.type(*words.split()).err.endswith(f"hint: {hint}\n")


def test_commands_in_messages_find_the_workspace_that_was_named(tmp_path: Path, workspace: Workspace) -> None:
    terminal = Terminal.within(tmp_path / "terminal")
    named = ("--root", str(workspace.store.root))
    ended = terminal.type(*named, "show")
    hint = f"torchenv --root {workspace.store.root} use 2"
    assert ended.error == (3, f"error: no active environment\nhint: switch to one with `{hint}`\n")
    assert terminal.type(*hint.split()[1:]).code == 0
    assert terminal.type(*named, "show", "9", "--json").json["hint"] == (
        f"list the environments with `torchenv --root {workspace.store.root} list`"
    )
