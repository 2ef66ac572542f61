"""A project comes as it is, is locked, and leaves with what its own tools read."""

from __future__ import annotations

import platform
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.project import MINOR, PAIR, Project, said_by
from tests.support.wheels import Wheel

from torchenv.installers import interpreter_in
from torchenv.installers.pip import find_carried_pip
from torchenv.installers.uv import uv_program
from torchenv.lockfile.lock import Lock
from torchenv.system.process import Command, Programs

LAYOUTS = Path(__file__).parents[1] / "data" / "layouts"


def bring_layout(team: Project, layout: str) -> None:
    (team.directory / "torchenv.toml").unlink()
    for path in (LAYOUTS / layout).rglob("*"):
        if path.is_file() and path.name != "torchenv.toml":
            there = team.directory / path.relative_to(LAYOUTS / layout)
            there.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text("utf-8").replace("https://wheels.example", team.index.root)
            there.write_text(text.replace("https://mirror.example", team.index.root), "utf-8")


def test_a_project_of_uv_with_extras_is_locked_as_it_is(team: Project) -> None:
    bring_layout(team, "01-uv-extras-and-conflicts")
    team.index.add("simple", Wheel(name="tqdm", version="4"), Wheel(name="triton-kernels", version="1"))
    done = team.run("init", "--from", "pyproject.toml")
    assert done.code == 0, done.said
    team.change("torchenv.toml", "[index]\n", f'[index]\npackages = "{team.index.packages}"\n')
    locked = team.run("lock")
    assert locked.code == 0, locked.said
    locks = {name: Lock.parse(team.read(f"pylock.{name}.toml"), name) for name in ("cpu", "cu126", "cu132")}
    assert {name: lock.versions["torch"] for name, lock in locks.items()} == {
        "cpu": "2.15.0+cpu",
        "cu126": "2.14.1+cu126",
        "cu132": "2.15.0+cu132",
    }
    assert ["triton-kernels" in lock.versions for lock in locks.values()] == [False, False, True]
    assert all("tqdm" in lock.versions for lock in locks.values())


def test_what_has_no_place_is_said_and_written_down(team: Project) -> None:
    bring_layout(team, "08-conda-with-a-pip-section")
    done = team.run("init", "--from", "environment.yml")
    assert done.code == 0
    assert "note: left out: environment.yml: `--find-links wheels`" in done.said.splitlines()
    assert "# Left out: environment.yml: `--find-links wheels`" in team.read("torchenv.toml").splitlines()
    assert team.run("init", "--from", "environment.yml").code == 2


@pytest.fixture
def pair(team: Project) -> Project:
    team.write("torchenv.toml", PAIR.replace("{root}", team.index.root))
    assert team.run("lock").code == 0
    return team


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_requirements_with_hashes_install_without_torchenv(pair: Project, tmp_path: Path, tool: str) -> None:
    assert pair.run("export", "--requirements", "ci", "-o", "ci.txt").code == 0
    run, uv = Programs(pair.environ), str(uv_program())
    environment = tmp_path / "environment"
    run(Command((uv, "venv", "--no-config", "--python", sys.executable, str(environment)))).check("make it")
    python = str(interpreter_in(environment))
    words = ("--no-deps", "--require-hashes", "-r", str(pair.directory / "ci.txt"))
    install = (
        (uv, "pip", "install", "--no-config", "--python", python, *words)
        if tool == "uv"
        else (python, "-I", str(find_carried_pip() / "pip"), "install", "--no-index", *words)
    )
    run(Command(install)).check("install it")
    assert said_by(environment, "import torch, lightning; print(torch.__version__)") == "2.15.0+cpu"


def test_tables_for_uv_take_torch_from_where_the_locks_do(pair: Project, tmp_path: Path) -> None:
    exported = pair.run("export", "--uv")
    assert exported.code == 0
    tables = tomllib.loads(exported.out)
    assert tables["project"]["optional-dependencies"]["ada"][0] == "torch==2.15.0+cu132"
    assert tables["tool"]["uv"]["conflicts"] == [[{"extra": "ci"}, {"extra": "ada"}]]

    project = tmp_path / "uv project"
    project.mkdir()
    head, _, rest = exported.out.partition("[project.optional-dependencies]")
    text = (
        f'{head}[project]\nname = "p"\nversion = "0"\nrequires-python = "=={MINOR}.*"\n'
        f"[project.optional-dependencies]{rest}"
        f'\n[[tool.uv.index]]\nname = "main"\nurl = "{pair.index.packages}"\ndefault = true\n'
    )
    (project / "pyproject.toml").write_text(text, "utf-8")
    words = ("lock", "--python", sys.executable, "--no-python-downloads")
    Programs(pair.environ)(Command((str(uv_program()), *words), cwd=project)).check("lock with uv")
    locked = tomllib.loads((project / "uv.lock").read_text("utf-8"))
    versions = {package["version"] for package in locked["package"] if package["name"] == "torch"}
    assert versions == {"2.15.0+cpu", "2.15.0+cu132"}
    shutil.rmtree(project)
