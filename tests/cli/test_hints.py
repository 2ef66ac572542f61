"""No message names a flag that neither torchenv nor the tool that is meant takes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import torchenv
from torchenv.cli import COMMANDS, make_parser

(PACKAGE,) = map(Path, torchenv.__path__)

# What hints say of other programs.
OF_OTHERS = {"--ours", "--shm-size", "--target"}  # git, docker, findmnt


def flags_in_messages() -> set[tuple[str, str]]:
    """Collect the flags that messages and hints of errors name, with the file."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name == "guest":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) or (
                isinstance(node, ast.Assign)
                and any(isinstance(target, ast.Name) and target.id == "hint" for target in node.targets)
            ):
                texts = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
            else:
                continue
            for text in texts:
                if isinstance(text, str):
                    found |= {(flag, path.name) for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)}
    return found


def test_every_flag_that_a_message_names_exists() -> None:
    known = set(OF_OTHERS)
    for name in COMMANDS:
        parser, _ = make_parser(name)
        for action in parser._actions:
            known.update(action.option_strings)
            if isinstance(action.choices, dict):
                for below in action.choices.values():
                    known.update(word for inner in below._actions for word in inner.option_strings)
    assert sorted((flag, where) for flag, where in flags_in_messages() if flag not in known) == []
