"""`torchenv add` and `drop`: a locked change of the active environment, beside it or in place."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.index import Index, serving
from tests.support.terminal import Terminal
from tests.support.wheels import Wheel
from tests.support.workspace import write_venv
from tests.support.world import world

from torchenv.lockfile.lock import Lock

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    served = world()
    served.add(
        "simple",
        Wheel(name="click", version="8.3.0"),
        Wheel(name="wandb", version="0.20.1", requires=("click", "numpy")),
    )
    with serving(served) as running:
        yield running


@pytest.fixture
def terminal(index: Index, tmp_path: Path) -> Terminal:
    terminal = Terminal.within(tmp_path, index)
    ended = terminal.create("--use", "--from", requirements(terminal))
    assert ended.code == 0, ended.err
    return terminal


def requirements(terminal: Terminal) -> Path:
    path = terminal.cwd / "requirements.txt"
    path.write_text("numpy==2.2.0\n")
    return path


def versions(terminal: Terminal, number: int) -> dict[str, str]:
    path = terminal.workspace / "locks" / f"pylock.{number}.toml"
    return dict(Lock.parse(path.read_text(), str(path)).versions)


def test_an_added_package_comes_in_a_new_environment_that_is_active_and_all_else_stays(
    terminal: Terminal,
) -> None:
    before = versions(terminal, 1)
    ended = terminal.type("add", "wandb")
    assert ended.code == 0, ended.err
    shown = terminal.type("show", "2", "--json").json
    assert ended.out == (
        f"made environment 2 ({shown['name']}) beside 1 ({shown['name'][:-2]});"
        f" {len(before)} packages kept at the same version\n"
        "  + click 8.3.0\n  + wandb 0.20.1\n"
        f"environment 2 ({shown['name']}) is now active; switch back with `torchenv rollback`\n"
    )
    assert versions(terminal, 2) == {**before, "click": "8.3.0", "wandb": "0.20.1"}
    assert versions(terminal, 2)["numpy"] == "2.2.0"
    assert (shown["torch"], shown["choice"]["added"]) == ("2.15.0+cpu", ["wandb"])
    assert terminal.type("history", "--json").json["switches"][-1]["why"] == "add wandb"
    assert [terminal.type("verify", number).code for number in ("1", "2")] == [0, 0]
    assert terminal.type("rollback").code == 0


def test_in_place_the_environment_itself_changes_and_verify_knows_it(terminal: Terminal) -> None:
    before = terminal.type("show", "1", "--json").json
    ended = terminal.type("add", "wandb", "--in-place")
    assert ended.code == 0, ended.err
    after = terminal.type("show", "1", "--json").json
    assert ended.out.startswith(f"changed environment 1 ({before['name']}) in place; ")
    assert len(terminal.built()) == 1
    assert after["lock"] != before["lock"]
    assert after["proof"][-1]["what"] == "add wandb"
    assert terminal.type("verify").code == 0
    assert terminal.type("status", "--json").json["problems"] == []
    assert sorted(path.name for path in (terminal.workspace / "locks").iterdir()) == ["pylock.1.toml"]

    ended = terminal.type("drop", "wandb", "--in-place")
    assert ended.code == 0, ended.err
    assert "  - click 8.3.0\n  - wandb 0.20.1\n" in ended.out
    assert terminal.type("verify").code == 0
    assert terminal.type("show", "1", "--json").json["lock"] == before["lock"]


def test_what_was_added_by_name_stays_when_what_needs_it_goes(terminal: Terminal) -> None:
    assert terminal.type("add", "click", "wandb").code == 0
    assert terminal.type("drop", "wandb").code == 0
    assert versions(terminal, 3) == {**versions(terminal, 1), "click": "8.3.0"}


def test_a_companion_comes_in_the_version_that_belongs_to_torch(terminal: Terminal) -> None:
    ended = terminal.type("add", "torchvision")
    assert ended.code == 0, ended.err
    assert versions(terminal, 2)["torchvision"] == "0.29.2+cpu"
    assert "torchvision==0.29.2" in terminal.type("show", "2", "--json").json["plan"]["requirements"]


def test_what_is_there_already_changes_nothing(terminal: Terminal) -> None:
    ended = terminal.type("add", "numpy==2.2.0")
    assert (ended.code, len(terminal.built())) == (0, 1)
    assert "already has that: nothing changed" in ended.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("add", "xformers"), 3, "torch==2.14.1"),
        (("add", "no such"), 2, "`no such` does not name a package\nhint: name packages such as `wandb`"),
        (("add", "torchvision==0.1"), 3, "does not fit torch 2.15.0+cpu, which has torchvision 0.29.2"),
        (("drop", "torch"), 3, "`torch` cannot be dropped from its environment"),
        (("drop", "nunpy"), 2, "did you mean `numpy`?"),
        (("drop", "filelock"), 3, "`filelock` is needed by `torch`"),
    ],
)
def test_what_does_not_fit_changes_nothing_and_says_why(
    terminal: Terminal, words: tuple[str, ...], code: int, said: str
) -> None:
    for how in ((), ("--in-place",)):
        ended = terminal.type(*words, *how)
        assert (ended.code, said in ended.err) == (code, True), ended.err
    assert len(terminal.built()) == 1
    assert terminal.type("verify").code == 0


def test_a_change_in_place_that_fails_leaves_what_was_there(terminal: Terminal, index: Index) -> None:
    before = terminal.type("show", "1", "--json").json["lock"]
    index.damage("wandb-0.20.1-py3-none-any.whl")
    try:
        ended = terminal.type("add", "wandb", "--in-place")
    finally:
        index.mend("wandb-0.20.1-py3-none-any.whl")
    assert ended.code == 4
    assert terminal.type("show", "1", "--json").json["lock"] == before
    assert terminal.type("verify").code == 0


@pytest.mark.parametrize("how", [(), ("--in-place",)])
def test_an_adopted_environment_is_only_read(index: Index, tmp_path: Path, how: tuple[str, ...]) -> None:
    terminal = Terminal.within(tmp_path / "own", index)
    write_venv(terminal.cwd / ".venv", {"torch": "2.14.1+cpu"})
    assert terminal.type("adopt", ".venv").code == 0
    ended = terminal.type("add", "wandb", *how)
    assert ended.code == 3
    assert "was adopted, and torchenv only reads it" in ended.err
    assert "hint: build one with the same packages first: `torchenv create --like 1 --use`" in ended.err


def test_where_smoke_commands_are_required_the_new_one_waits_for_them(terminal: Terminal) -> None:
    profile = 'schema = 1\nname = "careful"\n[smoke]\nrequired = true\ncommands = [["true"]]\n'
    (terminal.cwd / "torchenv.toml").write_text(profile)
    ended = terminal.type("add", "wandb")
    assert ended.code == 0, ended.err
    assert "next: torchenv smoke 2, then torchenv use 2\n" in ended.out
    assert terminal.type("list", "--json").json["current"] == 1
