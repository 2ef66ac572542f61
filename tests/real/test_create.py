"""The real thing: torch 2.15 beside a torch 2.14.1 that another tool installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import file_digest
from pathlib import Path
from typing import Any

import pytest

from torchenv.installers import interpreter_in

pytestmark = pytest.mark.real

COMPUTE = """
import torch
print(torch.__version__, (torch.ones(2, 3) @ torch.ones(3, 2)).sum().item())
"""


def test_2_15_is_built_beside_2_14_1_which_stays_as_it_is_byte_for_byte(old_environment: Path) -> None:
    before = every_file(old_environment)
    first = created(old_environment.parent)
    assert (first["number"], first["state"], first["kind"]) == (2, "ready", "built")
    assert first["torch"].startswith("2.15.0")
    assert every_file(old_environment) == before

    assert computed_in(Path(first["path"])) == f"{first['torch']} 12.0"
    assert computed_in(old_environment).startswith("2.14.1")
    assert every_file(old_environment) == before

    recorded = json.loads(torchenv(old_environment.parent, "list", "--json"))
    adopted = recorded["environments"][0]
    assert recorded["current"] == adopted["number"] == 1
    assert (adopted["kind"], adopted["path"], adopted["reads"]) == (
        "adopted",
        str(old_environment),
        "dcp<=2.14",
    )


def created(project: Path) -> Any:
    return json.loads(torchenv(project, "create", "2.15", "--json"))


def torchenv(project: Path, *words: str) -> str:
    """Run torchenv as a user of this machine would, in a project, and give its stdout."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TORCHENV_")}
    command = [sys.executable, "-m", "torchenv", *words]
    done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def computed_in(environment: Path) -> str:
    command = [str(interpreter_in(environment)), "-I", "-B", "-c", COMPUTE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def every_file(directory: Path) -> dict[str, tuple[int, str]]:
    """Return the time and the content of every file, byte code and all."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            found[str(path)] = (0, str(path.readlink()))
        elif path.is_file():
            with path.open("rb") as file:
                found[str(path)] = (path.stat().st_mtime_ns, file_digest(file, "sha256").hexdigest())
    return found
