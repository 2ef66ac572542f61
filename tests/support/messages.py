"""Collects what torchenv may say from its sources: each text with the names of its fields, by module."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import torchenv

(PACKAGE,) = map(Path, torchenv.__path__)
DATA = PACKAGE / "catalogue" / "data"

# What the data files hold beside messages: where a fact is from, names of modules and names of hardware.
NO_MESSAGES = {"source", "dcp", "members", "save", "family", "board", "name", "names"}


@functools.cache
def list_messages() -> dict[str, tuple[str, ...]]:
    """Return the messages of every module and data file, in the order in which they stand there."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        found[path.relative_to(PACKAGE).as_posix()] = _messages_of(ast.parse(path.read_text("utf-8")))
    for path in sorted(DATA.glob("*.toml")):
        texts = _texts_of_table(tomllib.loads(path.read_text("utf-8")))
        found[path.relative_to(PACKAGE).as_posix()] = _select(texts)
    for path in sorted(PACKAGE.rglob("*.jinja")):
        page, _, _ = re.sub(r"(?s)<style>.*?</style>", "", path.read_text("utf-8")).partition("<script")
        texts = (" ".join(text.split()) for text in re.split(r"<[^>]*>|{%.*?%}", page))
        found[path.relative_to(PACKAGE).as_posix()] = _select(texts)
    return {module: texts for module, texts in found.items() if texts}


def _messages_of(tree: ast.AST) -> tuple[str, ...]:
    """Return what reads as a message: two words or more, that are no docstring and no regular expression."""
    return _select(_texts(tree))


def hints_of(tree: ast.AST) -> Iterator[str]:
    """Yield every text that stands where a hint is given."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="hint") | ast.Assign(targets=[ast.Name(id="hint")]):
                yield from _alternatives(node.value)
            case ast.Call(func=ast.Attribute(attr="wrong"), args=[_, _, hint]):
                yield from _alternatives(hint)
            case _:
                pass


def raised_by(tree: ast.AST) -> Iterator[str]:
    """Yield the sentence of every error that is raised with one."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(args=[*given])):
                texts = (text for argument in given for text in _alternatives(argument))
                yield from _select(texts)
            case _:
                pass


def _select(texts: Iterable[str]) -> tuple[str, ...]:
    read = (re.sub(r"\s*\n\s*", " / ", text.strip()) for text in texts if _is_message(text))
    return tuple(dict.fromkeys(read))


def _is_message(text: str) -> bool:
    bare = re.sub(r"{[^{}]*}", "{}", text)
    return re.search(r"[A-Za-z]{2}", bare) is not None and re.search(r"\S +\S", bare) is not None


def _texts(node: ast.AST) -> Iterator[str]:
    if _is_call_of_re(node):
        return
    text = _text(node)
    if text is not None:
        yield text
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        is_part = isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)
        if not is_docstring and not is_part:
            yield from _texts(child)


def _is_call_of_re(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"))):
            return True
        case _:
            return False


def _text(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_part(part) for part in parts)
        case _:
            return None


def _part(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=text):
            return str(text)
        case ast.FormattedValue(value=value):
            return f"{{{_name(value)}}}"
        case _:
            return "{…}"


def _name(node: ast.expr) -> str:
    """Return what a field of a message holds, in a word: `{', '.join(names)}` holds names."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Constant(value=value):
            return str(value)
        case ast.IfExp(body=one, orelse=other):
            return f"{_name(one)}|{_name(other)}"
        case ast.Call(args=[first, *_]) if _name(first) != "…":
            return _name(first)
        case ast.Call(func=called):
            return _name(called)
        case ast.Subscript(value=inner) | ast.BinOp(left=inner) | ast.GeneratorExp(elt=inner):
            return _name(inner)
        case _:
            return "…"


def _alternatives(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.IfExp(body=one, orelse=other):
            yield from _alternatives(one)
            yield from _alternatives(other)
        case _:
            text = _text(node)
            if text is not None:
                yield text


def _texts_of_table(value: object, key: str = "") -> Iterator[str]:
    if key in NO_MESSAGES:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts_of_table(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_of_table(inner, key)
    elif isinstance(value, str):
        yield value
