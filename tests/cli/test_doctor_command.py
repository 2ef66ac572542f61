"""`doctor` takes any environment, prints one document, and exits 1 where it found something."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest
from tests.support.terminal import Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal.within(tmp_path)


def test_an_environment_by_its_path_is_diagnosed(terminal: Terminal) -> None:
    venv.create(terminal.cwd / "env", symlinks=True)
    done = terminal.type("doctor", "env")
    said = f"{terminal.cwd / 'env'}: has no torch; run `torchenv create` [no-torch]\n"
    assert (done.code, done.out) == (1, said)
    document = terminal.type("doctor", "env", "--json").json
    assert (document["schema"], document["well"]) == ("torchenv.doctor/1", False)


def test_what_is_neither_an_environment_nor_a_path_is_named(terminal: Terminal) -> None:
    done = terminal.type("doctor", "nowhere")
    assert (done.code, done.out) == (2, "")
    assert "nowhere" in done.err


def test_where_nothing_is_active_it_says_what_to_name(terminal: Terminal) -> None:
    # The Python that torchenv itself runs from is the first on this PATH.
    done = terminal.type("doctor", PATH=str(Path(sys.executable).parent))
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(
        "error: no active environment, and this project has no `.venv`\n"
        "hint: name the directory of one, or make one with `torchenv create`\n"
    )


@pytest.mark.parametrize("is_in_shell", [True, False])
def test_without_a_record_it_looks_at_the_shells_else_the_projects(
    terminal: Terminal, *, is_in_shell: bool
) -> None:
    venv.create(terminal.cwd / ".venv", symlinks=True)
    venv.create(terminal.cwd / "other", symlinks=True)
    shell = {"VIRTUAL_ENV": str(terminal.cwd / "other")} if is_in_shell else {}
    done = terminal.type("doctor", PATH=str(Path(sys.executable).parent), **shell)
    expected = terminal.cwd / ("other" if is_in_shell else ".venv")
    assert done.out == f"{expected}: has no torch; run `torchenv create` [no-torch]\n"
