"""The distributions hold all that torchenv needs, and install with the tools that people use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.support.index import Index, serving
from tests.support.wheels import Wheel

import torchenv
from torchenv.installers.uv import uv_program

ROOT = Path(__file__).parents[2]
BIN = "Scripts" if os.name == "nt" else "bin"
SAID = f"torchenv {torchenv.__version__}\n"


def run(*argv: str | Path, cwd: Path, env: Mapping[str, str]) -> str:
    """Run a program without what the tester has set, and return what it printed."""
    done = subprocess.run(
        list(map(str, argv)), cwd=cwd, env=dict(env), capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and the wheel from it, with what is installed here and nothing else."""
    made = tmp_path_factory.mktemp("dist")
    nowhere = {"PIP_NO_INDEX": "1", "HOME": str(made), "PATH": os.environ["PATH"]}
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", made, ROOT, cwd=made, env=nowhere)
    return made


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (made,) = dist.glob("*.whl")
    return made


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a user who has no cache and no tools yet."""
    (tmp_path / "home").mkdir()
    return {
        "PATH": os.defpath,
        "HOME": str(tmp_path / "home"),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "UV_PYTHON": sys.executable,
        "UV_NO_CONFIG": "1",
    }


def test_the_wheel_holds_every_file_of_the_package_the_profiles_and_the_man_page(wheel: Path) -> None:
    package = ROOT / "src" / "torchenv"
    wanted = {
        f"torchenv/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wanted |= {f"torchenv/profiles/{path.name}" for path in (ROOT / "profiles").glob("*.toml")}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert wanted == {name for name in names if name.startswith("torchenv/")}
    assert {
        "torchenv/py.typed",
        "torchenv/render/page.html.jinja",
        "torchenv/catalogue/data/catalogue.toml",
    } <= names
    assert any(name.endswith(".data/data/share/man/man1/torchenv.1") for name in names)
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_source_distribution_holds_the_documents_and_the_tests(dist: Path) -> None:
    (made,) = dist.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE",
        "docs/torchenv.1",
    } <= names
    assert {"docs/schemas/torchenv.plan-1.json", "tests/scripts/test_packaging.py", "scripts/test"} <= names
    assert not [name for name in names if name.startswith(".build")]


def test_the_wheel_runs_in_a_fresh_environment(wheel: Path, tmp_path: Path, env: dict[str, str]) -> None:
    uv, fresh = uv_program(), tmp_path / "fresh"
    python = fresh / BIN / "python"
    run(uv, "venv", "--offline", fresh, cwd=tmp_path, env=env)
    run(uv, "pip", "install", "--no-deps", "--offline", "--python", python, wheel, cwd=tmp_path, env=env)
    installed = fresh / BIN / "torchenv"
    assert run(installed, "--version", cwd=tmp_path, env=env) == SAID
    assert run(python, "-m", "torchenv", "version", cwd=tmp_path, env=env) == SAID
    # A Python that this leads astray does not even start.
    astray = {**env, "PYTHONHOME": "/rubbish", "PYTHONPATH": str(tmp_path)}
    (tmp_path / "argparse.py").write_text("raise SystemExit('shadowed')\n", "utf-8")
    assert run(installed, "--version", cwd=tmp_path, env=astray) == SAID
    (tmp_path / "linked").symlink_to(os.path.relpath(installed, tmp_path))
    assert run(tmp_path / "linked", "--version", cwd=tmp_path, env=astray) == SAID

    # The dependencies are those of the tests; torchenv itself stays that of the wheel.
    site = next(fresh.rglob("site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    host = ROOT / "tests" / "data" / "hosts" / "rtx-4090-driver-580.json"
    where = "import torchenv; print(torchenv.__file__)"
    assert run(python, "-c", where, cwd=project, env=env).startswith(str(fresh))
    assert "2.15.0" in run(installed, "plan", "2.15", "--host", host, cwd=project, env=env)
    run(installed, "init", "--profile", "finetune", cwd=project, env=env)
    run(installed, "report", "--html", "report.html", cwd=project, env=env)
    assert (project / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.skipif(os.name == "nt", reason="a script of sh")
def test_beside_no_environment_the_installers_own_script_knows_the_python(
    tmp_path: Path, env: dict[str, str]
) -> None:
    launcher = tmp_path / "bin" / "torchenv"
    launcher.parent.mkdir()
    shutil.copy(ROOT / "src" / "torchenv" / "launcher.sh", launcher)
    for name, text in (("torchenv-entry", 'echo "${PYTHONHOME-none} $*"'), ("python3", "echo another")):
        (launcher.parent / name).write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        (launcher.parent / name).chmod(0o755)
    astray = {**env, "PYTHONHOME": "/rubbish", "PATH": f"{launcher.parent}:{os.defpath}"}
    assert run("sh", "-c", "torchenv plan 'a b'", cwd=tmp_path, env=astray) == "none plan a b\n"
    assert run("sh", "torchenv", "plan", cwd=launcher.parent, env=astray) == "none plan\n"


def read_dependencies(wheel: Path) -> list[Wheel]:
    """Return small wheels in the place of what torchenv depends on, each of the oldest version allowed."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    requirements = map(Requirement, metadata.get_all("Requires-Dist", []))
    return [
        Wheel(name=requirement.name, version=limit.version)
        for requirement in requirements
        for limit in requirement.specifier
        if limit.operator == ">=" and requirement.marker is None
    ]


@pytest.mark.parametrize("tool", ["uv tool install", "uvx", "pip", "pipx"])
def test_the_wheel_installs_by(tool: str, wheel: Path, tmp_path: Path, env: dict[str, str]) -> None:
    index = Index()
    index.add("simple", *read_dependencies(wheel))
    uv = uv_program()
    with serving(index):
        env |= {"UV_DEFAULT_INDEX": index.packages, "PIP_INDEX_URL": index.packages}
        match tool:
            case "uv tool install":
                run(uv, "tool", "install", wheel, cwd=tmp_path, env=env)
                said = run(tmp_path / "bin" / "torchenv", "--version", cwd=tmp_path, env=env)
            case "uvx":
                said = run(uv, "tool", "run", "--from", wheel, "torchenv", "--version", cwd=tmp_path, env=env)
            case "pipx":
                # With its own backend it would first fetch a newer pip for itself.
                places = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
                env |= {**places, "PATH": f"{uv.parent}{os.pathsep}{os.defpath}"}
                run(sys.executable, "-m", "pipx", "install", "--backend", "uv", wheel, cwd=tmp_path, env=env)
                said = run(tmp_path / "bin" / "torchenv", "--version", cwd=tmp_path, env=env)
            case _:
                fresh = tmp_path / "fresh"
                run(sys.executable, "-m", "virtualenv", "--no-download", fresh, cwd=tmp_path, env=env)
                quiet = ("--no-cache-dir", "--disable-pip-version-check")
                run(fresh / BIN / "python", "-m", "pip", "install", *quiet, wheel, cwd=tmp_path, env=env)
                said = run(fresh / BIN / "torchenv", "--version", cwd=tmp_path, env=env)
    assert said == SAID
