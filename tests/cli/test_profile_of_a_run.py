"""A profile that is named holds for everything, and a variable of torchenv's own is read in one place."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.index import Index
from tests.support.project import MINOR
from tests.support.terminal import Terminal

import torchenv

(PACKAGE,) = map(Path, torchenv.__path__)

TARGET = f"""
[[target]]
name = "ci"
platform = "linux-x86_64"
python = "{MINOR}"
backend = "cpu"
"""


def write_profiles(terminal: Terminal, index: Index) -> Path:
    """Write a project's own profile, whose mirrors are nowhere, and another one that serves."""
    for name in ("TORCHENV_TORCH_INDEX", "TORCHENV_PACKAGE_INDEX"):
        del terminal.environ[name]
    nowhere = '[index]\ntorch = "https://nowhere.invalid/whl"\npackages = "https://nowhere.invalid/simple"\n'
    own = f'schema = 1\nname = "own"\n{nowhere}[smoke]\nrequired = true\n{TARGET}'
    (terminal.cwd / "torchenv.toml").write_text(own, "utf-8")
    team = terminal.cwd / "team.toml"
    serves = f'[index]\ntorch = "{index.torch_root}"\npackages = "{index.packages}"\n'
    team.write_text(f'schema = 1\nname = "team"\n[torch]\nversion = "2.15"\n{serves}{TARGET}', "utf-8")
    return team


def test_a_lock_takes_targets_and_both_indexes_from_the_profile_that_is_named(
    terminal: Terminal, index: Index
) -> None:
    team = write_profiles(terminal, index)
    locked = terminal.type("lock", TORCHENV_PROFILE=str(team))
    assert (locked.code, "nowhere.invalid" in locked.err) == (0, False)
    text = (terminal.cwd / "pylock.ci.toml").read_text("utf-8")
    assert "nowhere.invalid" not in text
    assert index.root in text
    assert terminal.type("lock", "--check", "--profile", team).code == 0
    assert terminal.type("lock", "--check").code == 1


def test_a_sync_asks_the_profile_that_is_named_whether_smoke_tests_are_required(
    terminal: Terminal, index: Index
) -> None:
    team = write_profiles(terminal, index)
    assert terminal.type("lock", "--profile", team).code == 0
    synced = terminal.type("sync", "--use", "--profile", team)
    assert (synced.code, synced.out) == (0, "1\n")
    assert terminal.type("list", "--json").json["current"] == 1


def test_a_variable_of_torchenv_is_named_as_a_key_in_one_module() -> None:
    names = (
        "TORCHENV_HOME",
        "TORCHENV_PROFILE",
        "TORCHENV_CATALOGUE",
        "TORCHENV_INSTALLER",
        "UV_PYTHON_INSTALL_MIRROR",
        "TORCHENV_TORCH_INDEX",
        "TORCHENV_PACKAGE_INDEX",
    )
    read: dict[str, set[str]] = {name: set() for name in names}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                # environ.get("NAME"), environ["NAME"], _read(environ, "NAME")
                case ast.Call(args=args):
                    keys = args
                case ast.Subscript(slice=key):
                    keys = [key]
                case ast.Tuple(elts=keys):
                    pass
                case _:
                    continue
            for key in keys:
                if isinstance(key, ast.Constant) and key.value in read:
                    read[key.value].add(path.relative_to(PACKAGE).as_posix())
    indexes = {"index/mirrors.py"}
    assert read == {name: indexes if "INDEX" in name else {"cli/settings.py"} for name in names}
