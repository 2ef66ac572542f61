"""Interpreters of which the newest, the free-threaded and the oldest have no wheel of each package."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.terminal import Ended, Terminal
from tests.support.workshop import HOSTS


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal.within(tmp_path)


def plan(terminal: Terminal, *words: str) -> Ended:
    return terminal.type("plan", "2.15", "--host", HOSTS / "free-threaded-pythons.json", *words)


def test_an_ordinary_interpreter_is_taken_and_why_no_other_is_said(terminal: Terminal) -> None:
    assert plan(terminal, "--json").json["python"]["path"] == "/usr/bin/python3.12"
    read = plan(terminal, "--explain").out
    assert "Python 3.10 (/usr/bin/python3.10): torch 2.15.0 requires Python >=3.11" in read
    assert "Python 3.13t (/usr/bin/python3.13t): torch 2.15.0 has no wheel for Python 3.13t" in read
    assert "Python 3.15t (/usr/bin/python3.15t): is free-threaded, which is taken only when asked for" in read


def test_for_torch_alone_the_newest_does_and_its_wheel_is_that_of_pytorchs_index(terminal: Terminal) -> None:
    planned = plan(terminal, "--python", "3.15", "--json").json
    assert planned["python"]["version"].startswith("3.15")
    assert planned["index"].endswith("/whl/cu132")
