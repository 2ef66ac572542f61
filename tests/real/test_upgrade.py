"""The real thing: the whole road from torch 2.14.1 to 2.15.0, killed again and again on the way."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.skipif(os.name == "nt", reason="Windows has no signals")]

PROFILE = """\
schema = 1
name = "road"
[torch]
version = "2.15"
[checkpoints]
roots = ["runs"]
distributed = true
[smoke]
commands = [["python", "-B", "measure.py"]]
[evaluation]
commands = [["python", "-B", "measure.py"]]
metrics = { loss = { better = "lower", relative = 0.001 } }
"""

# Two ranks go on from one step of a run, if it is named, and save the next one as a distributed checkpoint.
TRAIN = """\
import os, sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

before, after = sys.argv[1:]
dist.init_process_group("gloo")
weight = distribute_tensor(torch.arange(24.0).reshape(6, 4), init_device_mesh("cpu", (2,)), [Shard(0)])
state = {"weight": weight, "step": 0}
if before != "none":
    dcp.load(state, checkpoint_id=f"runs/a/step-{before}")
    assert state["step"] == int(before), state["step"]
state = {"weight": state["weight"] + 1, "step": int(after)}
dcp.save(state, checkpoint_id=f"runs/a/step-{after}")
dist.barrier()
if dist.get_rank() == 0:
    print(f"TRAINED {torch.__version__}", flush=True)
dist.destroy_process_group()
# As an interpreter ends, a thread of 2.14.1 aborts the process now and then.
os._exit(0)
"""

MEASURE = """\
import json, os, time, torch
# As long as there is this file no measurement ends before the upgrade is killed in it.
time.sleep(6 if os.path.exists("slow") else 0)
torch.manual_seed(7)
torch.set_num_threads(1)
weights = torch.zeros(8, 1, requires_grad=True)
inputs = torch.randn(64, 8)
targets = inputs @ torch.randn(8, 1)
for _ in range(STEPS):
    loss = torch.nn.functional.mse_loss(inputs @ weights, targets)
    loss.backward()
    with torch.no_grad():
        weights -= 0.05 * weights.grad
        weights.grad = None
print(json.dumps({"loss": loss.item()}))
"""
HONEST = MEASURE.replace("STEPS", "20")
PLANTED = MEASURE.replace("STEPS", "20 if torch.__version__ < '2.15' else 15")

# In which step of the road the upgrade is killed, and how many seconds into it at most. What follows the
# evaluation is over in moments: an upgrade that is faster than its end there has ended well.
KILLED = [("check", 1.5)] * 3 + [("create", 5.0)] * 5 + [("smoke", 5.0)] * 6 + [("evaluate", 4.0)] * 6
AT_THE_END = [("keep", 0.4)] * 2 + [("switch", 0.3)]


@dataclass
class Road:
    """A project with torch 2.14.1 in its .venv, a training of two ranks, and a workspace of its own."""

    project: Path
    workspace: Path
    scratch: Path

    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TORCHENV_")}
        return {**kept, "TORCHENV_HOME": str(self.workspace), "OMP_NUM_THREADS": "1"}

    def torchenv(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; a failure shows all that it printed."""
        command = [sys.executable, "-m", "torchenv", *words]
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == code, (
            f"{' '.join(words)} ended with {done.returncode}\n--- stdout\n{done.stdout}\n"
            f"--- stderr\n{done.stderr}\n--- logs\n{self.read_logs()}"
        )
        return done

    def read_logs(self) -> str:
        logs = sorted(self.workspace.glob("logs/*/*"))
        return "\n".join(f"{path}:\n{path.read_text('utf-8', 'replace')[-4000:]}" for path in logs)

    def document(self, *words: str) -> Any:
        return json.loads(self.torchenv(*words, "--json").stdout)

    def train(self, before: str, after: int) -> str:
        start = ("run", "--", "torchrun", "--standalone", "--nproc-per-node=2")
        done = self.torchenv(*start, "train.py", before, str(after))
        assert "TRAINED" in done.stdout, done.stdout + done.stderr
        return done.stdout.rpartition("TRAINED ")[2].strip()

    def kill(self, step: str, seconds: float, *, whole: bool) -> bool:
        """Go on with the upgrade and kill it so long after a step has begun; whether it was killed.

        With `whole` all that it started dies with it, else it alone does.
        """
        said = self.scratch / "killed.txt"
        with said.open("w", encoding="utf-8") as file:
            # Without a compiler on PATH, half a minute of compiling is left out.
            process = subprocess.Popen(
                [sys.executable, "-m", "torchenv", "upgrade", "--yes"],
                cwd=self.project,
                env={**self.environ(), "PATH": str(self.scratch)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            while process.poll() is None and step != "check" and f": {step}\n" not in said.read_text("utf-8"):
                time.sleep(0.02)
            time.sleep(seconds)
            assert process.poll() in {None, 0}, f"ended before {step}:\n{said.read_text('utf-8')}"
            was_running = process.poll() is None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL) if whole else process.kill()
            process.wait()
        return was_running


@pytest.fixture
def road(old_environment: Path, tmp_path: Path) -> Iterator[Road]:
    project, made = old_environment.parent, ("torchenv.toml", "train.py", "measure.py")
    (project / "slow").touch()
    for name, text in zip(made, (PROFILE, TRAIN, HONEST), strict=True):
        (project / name).write_text(text)
    yield Road(project, tmp_path / "workspace", tmp_path)
    for name in (*made, "slow"):
        (project / name).unlink(missing_ok=True)
    shutil.rmtree(project / "runs")
    shutil.rmtree(tmp_path / "workspace")


def test_the_road_is_walked_to_its_end_though_it_is_killed_twenty_times(road: Road) -> None:
    road.torchenv("adopt", ".venv")
    assert road.train("none", 1).startswith("2.14.1")
    assert road.train("1", 2).startswith("2.14.1")
    chance = random.Random(20261028)

    def kill_all(moments: list[tuple[str, float]]) -> int:
        killed = 0
        for number, (step, limit) in enumerate(moments):
            killed += road.kill(step, chance.uniform(0.0, limit), whole=number % 2 == 0)
            assert road.document("list")["current"] == 1 or step in {"keep", "switch"}
        return killed

    assert kill_all(KILLED) == len(KILLED) == 20
    (road.project / "slow").unlink()

    (road.project / "measure.py").write_text(PLANTED)
    worse = road.torchenv("upgrade", code=3)
    assert "measures worse than environment 1" in worse.stderr, worse.stderr
    assert "stays active" in worse.stderr
    assert road.document("list")["current"] == 1

    (road.project / "measure.py").write_text(HONEST)
    kill_all(AT_THE_END)
    ended = road.document("upgrade")
    assert (ended["next"], ended["from"], len(ended["kept"])) == (None, 1, 1), ended
    (boat,) = ended["kept"]
    assert boat.endswith("runs/a/step-2")
    listed = road.document("list")
    (active,) = [one for one in listed["environments"] if one["number"] == listed["current"]]
    assert (active["torch"].startswith("2.15.0"), active["state"]) == (True, "proven")
    assert [one["state"] for one in listed["environments"] if one["state"] == "building"] == []
    road.torchenv("checkpoints", "verify", "runs/a/step-2")

    # The door is watched: what 2.15 saves, the old one cannot read, and its lifeboat is one step back.
    assert road.train("2", 3).startswith("2.15.0")
    (stranded,) = road.document("status")["checkpoints"]
    assert (stranded["newest"], stranded["newest_readable"]) == ("step-3", "step-2"), stranded
    assert (stranded["lifeboat"]["path"], stranded["lifeboat"]["steps_behind"]) == (boat, 1)
    noted = road.torchenv("run", "--", "true").stderr
    assert "step-3 cannot be read by environment 1" in noted, noted
    assert f"lifeboat: {boat}, 1 step behind" in noted, noted

    road.torchenv("rollback")
    assert road.train("2", 4).startswith("2.14.1")
    road.torchenv("commit")
    assert not (road.workspace / "upgrade.json").exists()
