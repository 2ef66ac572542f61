"""Names in the words of the field: a class means one thing, functions and docstrings begin with a verb."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torchenv

(PACKAGE,) = map(Path, torchenv.__path__)
TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")
}

# Participles that do not end in -ed; those that are a verb too (put, set, cut, read) are left out.
_IRREGULAR = frozenset(
    re.findall(
        r"\w+",
        """
        begun bound broken brought built caught chosen done drawn forgotten found given gone grown heard held
        hidden kept known laid left lost made meant met paid said seen sent shown spent taken told torn
        thought understood undone unwritten withheld written
        """,
    )
)
# What ends in -ed and is none.
_NO_PARTICIPLES = frozenset({"seed", "need", "feed", "speed", "embed", "exceed", "proceed", "shed"})


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def is_participle(name: str) -> bool:
    first = name.strip("_").split("_")[0]
    return first in _IRREGULAR or (
        first.endswith("ed") and first.removeprefix("un") not in _NO_PARTICIPLES and len(first) > 3
    )


def test_a_class_name_occurs_once() -> None:
    names = Counter(
        node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_no_function_is_named_by_a_participle() -> None:
    found = [
        f"{path}: {node.name}"
        for path, node in functions()
        # A property is a value, and a value may be known by what was done to it.
        if is_participle(node.name)
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]
    assert found == []


def test_a_docstring_begins_with_what_the_function_does() -> None:
    found = [
        f"{path}: {node.name}"
        for path, node in functions()
        if re.match(r"(Give|Gives|Say|Says|Tell|Tells)\b", ast.get_docstring(node) or "")
    ]
    assert found == []
