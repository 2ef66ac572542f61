"""The layers hold: facts come in at the bottom, and a module imports only from layers below its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import torchenv

(PACKAGE,) = map(Path, torchenv.__path__)

# From the bottom to the top; what stands on one line does not import each other, and a package is one module.
LAYERS = (
    # words
    ("errors",),
    # values
    ("tables",),
    ("garbage", "host", "lock", "lockset", "record", "settings", "steps"),
    ("manifest",),
    ("lifeboat",),
    # inputs
    ("audit", "catalogue", "checkpoints", "profile"),
    # decision
    ("plan",),
    # programs
    ("file_lock", "network", "orphans"),
    ("lease", "process"),
    # ports: the disk, the machine, the network, other tools
    ("disk", "environments", "identity", "indexes", "resources", "running"),
    ("fingerprint", "isolation", "packages", "probe", "store"),
    ("installers", "integrity", "places"),
    ("scan",),
    # use
    ("actions",),
    ("render",),
    # edge
    ("cli",),
)

# Run by other interpreters, which have no torchenv.
ALONE = ("inside", "probe/children")


def test_every_module_has_its_layer() -> None:
    modules = {each.stem for each in PACKAGE.glob("[!_]*.py")}
    packages = {each.parent.name for each in PACKAGE.glob("*/__init__.py")}
    named = [name for layer in LAYERS for name in layer]
    assert sorted(named) == sorted((modules | packages) - {"inside"})


@pytest.mark.parametrize("name", [name for layer in LAYERS for name in layer])
def test_a_module_imports_only_from_layers_below_it(name: str) -> None:
    height = {each: level for level, names in enumerate(LAYERS) for each in names}
    upward = [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in files_of(name)
        for other in imported(path)
        if other != name and height[other] >= height[name]
    ]
    assert upward == []


@pytest.mark.parametrize("folder", ALONE)
def test_what_another_interpreter_runs_imports_nothing_of_torchenv(folder: str) -> None:
    files = list((PACKAGE / folder).glob("*.py"))
    assert files
    assert [(path.name, other) for path in files for other in imported(path)] == []


def files_of(name: str) -> list[Path]:
    module = PACKAGE / f"{name}.py"
    return [module] if module.is_file() else sorted((PACKAGE / name).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Give the modules of torchenv that a file imports, inside functions and for types too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                paths = [each.name for each in names]
            case ast.ImportFrom(module="torchenv", names=names):
                paths = [f"torchenv.{each.name}" for each in names]
            case ast.ImportFrom(module=str(module)):
                paths = [module]
            case _:
                continue
        parts = (each.split(".") for each in paths)
        yield from (
            each[1]
            for each in parts
            if len(each) > 1 and each[0] == "torchenv" and not each[-1].startswith("_")
        )
