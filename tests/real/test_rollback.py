"""The real thing: from torch 2.14.1 to 2.15, some work, and back to what is still as it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.real.test_create import every_file

from torchenv.installers import interpreter_in

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

# Two ranks train with FSDP2, and save by DCP 100 steps after the newest save of the run; beside the runs, the
# whole tensors as torch.save writes them, which both releases read.
TRAIN = """
import os, pathlib
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

dist.init_process_group("gloo")
run = pathlib.Path("runs") / os.environ.get("RUN", "a")
step = 100 + max((int(path.name[5:]) for path in run.glob("step-*")), default=0)
dist.barrier()
torch.manual_seed(step)
model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 3))
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(3):
    model(torch.ones(2, 6)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))


def whole(values):
    if isinstance(values, dict):
        return {key: whole(value) for key, value in values.items()}
    return values.full_tensor() if isinstance(values, DTensor) else values


full = whole(state)
if dist.get_rank() == 0:
    os.makedirs("expected", exist_ok=True)
    torch.save(full, f"expected/{run.name}-{step}")
dcp.save(state, checkpoint_id=run / f"step-{step}")
print(f"SAVED {torch.__version__}", flush=True)
dist.barrier()
dist.destroy_process_group()
os._exit(0)
"""

# Loads saves into zeros: each is read, refused or different.
ASK = """
import json, re, sys
import torch
import torch.distributed.checkpoint as dcp


def zeros(values):
    if isinstance(values, dict):
        return {key: zeros(value) for key, value in values.items()}
    return torch.zeros_like(values) if isinstance(values, torch.Tensor) else values


def tensors(values, name=""):
    if isinstance(values, dict):
        for key, value in values.items():
            yield from tensors(value, f"{name}.{key}")
    elif isinstance(values, torch.Tensor):
        yield name, values


answers = {}
for save in sys.argv[1:]:
    run, step = re.search(r"(\\w+)(?:-for-[\\d.]+)?/step-(\\d+)$", save).groups()
    expected = torch.load(f"expected/{run}-{step}")
    state = zeros(expected)
    try:
        dcp.load(state, checkpoint_id=save)
    except BaseException as error:  # DCP's own is no Exception
        answers[save] = f"refuses: {error}"
        continue
    found, wanted = dict(tensors(state)), dict(tensors(expected))
    same = found.keys() == wanted.keys() and all(
        found[name].dtype == wanted[name].dtype
        and torch.equal(found[name].reshape(-1).view(torch.uint8), wanted[name].reshape(-1).view(torch.uint8))
        for name in wanted
    )
    answers[save] = "reads" if same and wanted else "differs"
print("ANSWERS", json.dumps({"torch": torch.__version__, "saves": answers}))
"""


@dataclass(frozen=True)
class Shell:
    """A project with torch 2.14.1 in its .venv, and 2.15 beside it as the README says."""

    project: Path
    workspace: Path
    said: list[str] = field(default_factory=list)

    def __call__(self, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a line as it stands in the README; all that it printed is kept for whoever fails."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TORCHENV_")}
        words = [sys.executable, "-m", *line.split()]
        done = subprocess.run(
            words,
            cwd=self.project,
            env={**environ, "TORCHENV_HOME": str(self.workspace), "OMP_NUM_THREADS": "1", **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
        )
        self.said.append(f"$ {line}\nended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def type(self, line: str, **variables: str) -> str:
        """Run a line that must end well, and return what it printed."""
        done = self(line, **variables)
        assert done.returncode == 0, self.tell()
        return done.stdout.strip()

    def ask(self, python: Path, saves: list[str]) -> Mapping[str, str]:
        """Ask a torch itself which saves it reads."""
        words = [str(interpreter_in(python)), "-B", "-c", ASK, *saves]
        done = subprocess.run(
            words, cwd=self.project, capture_output=True, text=True, check=False, timeout=600
        )
        self.said.append(f"$ {python} reads\nended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        assert "ANSWERS " in done.stdout, self.tell()
        answers = json.loads(done.stdout.partition("ANSWERS ")[2])
        assert answers["torch"].startswith("2.14.1")
        return dict(answers["saves"])

    def tell(self) -> str:
        """Return all that was printed so far."""
        return "\n".join(self.said)


@pytest.fixture(scope="module")
def shell(old_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    shell = Shell(old_environment.parent, tmp_path_factory.mktemp("rollback") / "workspace")
    shell.type("torchenv create 2.15 --like .venv")
    yield shell
    # The project is that of all real runs, and the next one must not find the saves of this one.
    for path in shell.project.iterdir():
        if path != old_environment:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_back_on_2_14_1_at_once_and_nothing_of_it_has_changed(old_environment: Path, shell: Shell) -> None:
    before = every_file(old_environment)
    shell.type("torchenv use 2")
    (shell.project / "work.py").write_text(WORK)
    assert shell.type("torchenv run -- python -B work.py").startswith("2.15.0"), shell.tell()
    assert (
        shell.type("torchenv verify") == f"environment {in_use(shell.type('torchenv list --json'))} unchanged"
    )

    switched = json.loads(shell.type("torchenv rollback --json"))

    assert (switched["from"], switched["to"], switched["path"]) == (2, 1, str(old_environment))
    python = [
        str(shell.workspace / "current" / "bin" / "python"),
        "-B",
        "-c",
        "import torch; print(torch.__version__)",
    ]
    done = subprocess.run(python, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2.14.1")
    history = json.loads(shell.type("torchenv history --json"))["switches"]
    assert [(switch.get("from"), switch["to"], switch["why"]) for switch in history] == [
        (1, 2, "use"),
        (2, 1, "rollback"),
    ]
    assert every_file(old_environment) == before
    assert (
        shell.type("torchenv verify") == f"environment {in_use(shell.type('torchenv list --json'))} unchanged"
    )


def test_a_rollback_names_exactly_what_the_real_2_14_1_refuses(old_environment: Path, shell: Shell) -> None:
    (shell.project / "train.py").write_text(TRAIN)
    train = "-- torchrun --standalone --nproc-per-node 2 train.py"
    assert shell.type(f"torchenv run -e 1 {train}").count("SAVED 2.14.1") == 2, shell.tell()
    assert shell.type(f"torchenv run -e 2 {train}").count("SAVED 2.15.0") == 2, shell.tell()
    assert shell.type(f"torchenv run -e 2 {train}", RUN="b").count("SAVED 2.15.0") == 2, shell.tell()
    shell.type("torchenv use 2")

    back = judge(shell, "torchenv rollback --json")
    assert back == {
        "runs/a": ("runs/a/step-100", ["runs/a/step-200"]),
        "runs/b": (None, ["runs/b/step-100"]),
    }
    hold(shell, old_environment, back)

    # What the README says of checkpoints, as it stands there.
    shell.type("torchenv use 2")
    shell.type("torchenv checkpoints scan runs")
    shell.type("torchenv checkpoints keep runs/a/step-100")
    shell.type("torchenv checkpoints downgrade runs/a/step-200 --for 2.14")
    written = shell.type("torchenv run --write-for 2.14 -- torchrun --nproc-per-node 2 train.py", RUN="c")
    assert written.count("SAVED 2.15.0") == 2, shell.tell()
    after = judge(shell, "torchenv rollback --with-checkpoints --json")
    assert after == {
        "runs/a": ("runs/a-for-2.14/step-200", ["runs/a/step-200"]),
        "runs/b": ("runs/b-for-2.14/step-100", ["runs/b/step-100"]),
        "runs/c": ("runs/c/step-100", []),
    }
    hold(shell, old_environment, after)
    verified = shell.type("torchenv checkpoints verify")
    assert verified == f"{shell.project}/runs/a/step-100: unchanged", shell.tell()
    gate = shell("torchenv checkpoints gate --readable-by 2.14 runs")
    assert gate.returncode == 0, shell.tell()


def judge(shell: Shell, line: str) -> dict[str, tuple[str | None, list[str]]]:
    """Roll back; the newest readable save of each run, and those that are called unreadable."""
    document: dict[str, Any] = json.loads(shell.type(line))
    assert (document["from"], document["to"]) == (2, 1)
    base = f"{shell.workspace.parent}/"

    def name(path: str) -> str:
        return path.removeprefix(base).removeprefix(f"{shell.project}/")

    return {
        name(run["run"]): (
            name(run["newest_readable"]) if run["newest_readable"] else None,
            list(map(name, run["unreadable"])),
        )
        for run in document["checkpoints"]
        if "/runs/" in run["run"]  # what another test saved in this project is none of these
    }


def hold(shell: Shell, python: Path, told: Mapping[str, tuple[str | None, list[str]]]) -> None:
    """Hold what was told of every save against the real torch."""
    newest = [save for save, _ in told.values() if save]
    unreadable = [save for _, saves in told.values() for save in saves]
    answers = shell.ask(python, [*newest, *unreadable])
    assert {save for save, answer in answers.items() if answer == "reads"} == set(newest), shell.tell()
    refused = {save for save, answer in answers.items() if "too many values to unpack" in answer}
    assert refused == set(unreadable), shell.tell()


def in_use(document: str) -> str:
    listed = json.loads(document)
    (current,) = (found for found in listed["environments"] if found["number"] == listed["current"])
    return f"{current['number']} ({current['name']})"
