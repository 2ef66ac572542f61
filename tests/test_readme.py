"""The README shows only commands that torchenv takes, and scripts that are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from torchenv.cli import COMMANDS, make_parser

ROOT = Path(__file__).parents[1]


def shown(program: str) -> list[str]:
    """Return the commands of the README's code blocks that start a program."""
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    found = (re.match(rf"    (?:\$ )?({program}.*)", line) for line in lines)
    return list(dict.fromkeys(match[1] for match in found if match))


@pytest.mark.parametrize("line", shown("torchenv "))
def test_a_command_of_the_readme_is_one_that_torchenv_takes(line: str) -> None:
    _, name, *words = shlex.split(line, comments=True)
    parser, spec = make_parser(name)
    spec.read(parser.parse(words), ROOT)


@pytest.mark.parametrize("line", shown("scripts/"))
def test_a_script_of_the_readme_is_there(line: str) -> None:
    assert (ROOT / shlex.split(line, comments=True)[0]).is_file()


def test_every_command_is_in_the_readme() -> None:
    named = {shlex.split(line, comments=True)[1] for line in shown("torchenv ")}
    assert set(COMMANDS) <= named
