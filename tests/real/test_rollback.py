"""The real thing: from torch 2.14.1 to 2.15, some work, and back to what is still as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.real.test_create import every_file

pytestmark = pytest.mark.real

WORK = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    model(torch.ones(1, 4)).square().sum().backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
print(torch.__version__)
"""


def test_back_on_2_14_1_at_once_and_nothing_of_it_has_changed(old_environment: Path, tmp_path: Path) -> None:
    project, workspace = old_environment.parent, tmp_path / "workspace"
    before = every_file(old_environment)

    def torchenv(*words: str) -> str:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TORCHENV_")}
        command = [sys.executable, "-m", "torchenv", "--root", str(workspace), *words]
        done = subprocess.run(
            command, cwd=project, env=environ, capture_output=True, text=True, check=False, timeout=1800
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    torchenv("create", "2.15", "--use")
    assert torchenv("run", "--", "python", "-B", "-c", WORK).startswith("2.15.0")
    assert torchenv("verify") == f"environment {in_use(torchenv('list', '--json'))} unchanged"

    switched = json.loads(torchenv("rollback", "--json"))

    assert (switched["from"], switched["to"], switched["path"]) == (2, 1, str(old_environment))
    python = [
        str(workspace / "current" / "bin" / "python"),
        "-B",
        "-c",
        "import torch; print(torch.__version__)",
    ]
    done = subprocess.run(python, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2.14.1")
    history = json.loads(torchenv("history", "--json"))["switches"]
    assert [(each.get("from"), each["to"], each["why"]) for each in history] == [
        (1, 2, "create"),
        (2, 1, "rollback"),
    ]
    assert every_file(old_environment) == before
    assert torchenv("verify") == f"environment {in_use(torchenv('list', '--json'))} unchanged"


def in_use(document: str) -> str:
    listed = json.loads(document)
    (current,) = (each for each in listed["environments"] if each["number"] == listed["current"])
    return f"{current['number']} ({current['name']})"
