"""The commands that the messages of the sources tell people to type, read from the sources."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import torchenv

(PACKAGE,) = map(Path, torchenv.__path__)
COMMAND = re.compile(r"`(torchenv(?: [^`]+)?)`")


@functools.cache
def list_commands() -> frozenset[tuple[str, str]]:
    """Return each command in a message with its module; `{}` stands for what is filled in."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        if module.startswith("guest/"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        for text in _list_messages(tree):
            found |= {(module, " ".join(command.split())) for command in COMMAND.findall(text)}
        found |= {(module, " ".join(words)) for words in _list_joined(tree)}
    return frozenset(found)


def _list_joined(tree: ast.Module) -> Iterator[list[str]]:
    """Yield the words of every list that is written as a command: `["torchenv", "trust", str(root)]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.List) and node.elts:
            words = [str(word.value) if isinstance(word, ast.Constant) else "{}" for word in node.elts]
            first = ast.unparse(node.elts[0])
            if first in {"*session.settings.command", "*settings.command", "*program"}:
                words[0] = "torchenv"
            if words[0] == "torchenv" and len(words) > 1:
                yield words


def _list_messages(tree: ast.Module) -> Iterator[str]:
    """Yield every text that is no docstring, no line of a help and no part of another text."""
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and _has_docstring(node):
            inner.add(id(node.body[0].value))  # type: ignore[attr-defined]
        if isinstance(node, ast.keyword) and node.arg in {"help", "description"}:
            inner.update(map(id, ast.walk(node.value)))
        if id(node) in inner:
            continue
        if isinstance(node, ast.JoinedStr):
            inner.update(map(id, ast.walk(node)))
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
