"""The layers hold: facts come in at the bottom, and a module imports only from layers below its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import torchenv

(PACKAGE,) = map(Path, torchenv.__path__)

# From the bottom to the top: a room imports only from rooms above its own in this list. What each is for,
# and what it may touch, is told in CONTRIBUTING.md.
ROOMS = (
    "errors",
    "system",
    "environment",
    "host",
    "catalogue",
    "profile",
    "index",
    "packages",
    "lockfile",
    "plan",
    "installers",
    "workspace",
    "storage",
    "checkpoints",
    "audit",
    "actions",
    "render",
    "cli",
)

# Run by other interpreters, which have no torchenv.
ALONE = "guest"


def test_every_room_has_its_place() -> None:
    modules = {path.stem for path in PACKAGE.glob("[!_]*.py")}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert sorted((*ROOMS, ALONE)) == sorted(modules | packages)
    assert len(ROOMS) < 22


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_rooms_above_its_own(room: str) -> None:
    height = {name: level for level, name in enumerate(ROOMS)}
    upward = [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in files_of(room)
        for other in imported(path)
        if other != room and height[other] >= height[room]
    ]
    assert upward == []


def test_the_rooms_are_joined_by_at_most_a_hundred_arrows() -> None:
    arrows = {(room, other) for room in ROOMS for path in files_of(room) for other in imported(path)}
    assert len([arrow for arrow in arrows if arrow[0] != arrow[1]]) <= 100


def test_what_another_interpreter_runs_imports_nothing_of_torchenv() -> None:
    files = list((PACKAGE / ALONE).glob("*.py"))
    assert files
    assert [(path.name, other) for path in files for other in imported(path)] == []


def test_files_are_looked_for_without_an_error_where_this_user_may_not_look() -> None:
    found = [
        (path.name, node.lineno)
        for room in ROOMS
        for path in files_of(room)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in {"is_dir", "is_file", "glob", "rglob"}
        if (room, path.name) not in MAY_RAISE and not is_entry(node)
    ]
    assert found == []


# These are guarded where they are called.
MAY_RAISE = {
    ("profile", "packaged.py"),
    ("system", "looking.py"),
    ("installers", "cache.py"),
    ("cli", "settings.py"),
}


def is_entry(node: ast.Attribute) -> bool:
    """Whether it is asked of an entry of a directory, which this user could list."""
    return isinstance(node.value, ast.Name) and node.value.id == "entry"


def files_of(name: str) -> list[Path]:
    module = PACKAGE / f"{name}.py"
    return [module] if module.is_file() else sorted((PACKAGE / name).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of torchenv that a file imports, inside functions and for types too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                paths = [name.name for name in names]
            case ast.ImportFrom(module="torchenv", names=names):
                paths = [f"torchenv.{name.name}" for name in names]
            case ast.ImportFrom(module=str(module)):
                paths = [module]
            case _:
                continue
        parts = (path.split(".") for path in paths)
        yield from (
            part[1]
            for part in parts
            if len(part) > 1 and part[0] == "torchenv" and not part[-1].startswith("_")
        )
