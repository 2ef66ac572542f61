"""How long a person waits for torchenv, as ratios to `torchenv --version` in the same run.

    python scripts/bench/switching.py

A workspace of 10 environments whose training runs hold 10,000 checkpoints is made in a temporary directory.
What `verify` and isolation take on a real torch is measured by `python scripts/bench creating proving`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

# The same environments as in the tests: real files, and a real Python.
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.workspace import Workspace

from torchenv.actions.switch import use
from torchenv.workspace.records import Kept, Run

ENVIRONMENTS = 10
RUNS = 100
CHECKPOINTS_IN_A_RUN = 100
ROUNDS = 15

LIMITS = (("rollback", 5.0), ("list --json", 5.0))


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="torchenv-bench-") as directory:
        workspace = Workspace(Path(directory))
        fill(workspace)
        commands = [("--version",), *(tuple(command.split()) for command, _ in LIMITS)]
        times = measured(workspace.store.root, commands)
    start, *rest = times
    print(f"torchenv --version: {start * 1000:.0f} ms (the median of {ROUNDS})")
    within = True
    for (command, limit), taken in zip(LIMITS, rest, strict=True):
        within &= taken <= limit * start
        print(
            f"torchenv {command}: {taken * 1000:.0f} ms, {taken / start:.1f} times that (at most {limit:g})"
        )
    return 0 if within else 1


def fill(workspace: Workspace) -> None:
    """Record environments, switches between them, and what a scan saw of their checkpoints."""
    numbers = range(1, ENVIRONMENTS + 1)
    for number in numbers:
        workspace.built(f"2.{number}.0+cu132", packages={"numpy": "2.3.0", "filelock": "3.20.0"})
    for number in numbers:
        use(str(number), workspace.store, workspace.outside)
    readable = {number: f"step-{CHECKPOINTS_IN_A_RUN - number}" for number in numbers}
    paths = [f"runs/{name:03}" for name in range(RUNS)]
    newest = f"step-{CHECKPOINTS_IN_A_RUN}"
    store = workspace.store
    with store.hold("bench"):
        manifest = store.read().record_runs(
            Run(path=path, newest=newest, newest_readable=readable) for path in paths
        )
        for path in paths[:10]:
            manifest = manifest.keep(Kept(path=f"{path}/step-1", readable_by=tuple(numbers)))
        store.write(manifest)
    # The full index lies beside the manifest.
    checkpoints = [
        {"path": f"{path}/step-{step}", "format": "dcp", "state": "complete", "bytes": 1 << 30, "step": step}
        for path in paths
        for step in range(CHECKPOINTS_IN_A_RUN)
    ]
    document = {"schema": "torchenv.checkpoints/1", "roots": ["runs"], "checkpoints": checkpoints}
    (store.root / "checkpoints.json").write_text(json.dumps(document), "utf-8")


def measured(root: Path, commands: Sequence[tuple[str, ...]]) -> list[float]:
    """Return the median of each command, which take turns, so that a busy moment strikes them all."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(ROUNDS):
        for command, taken in zip(commands, times, strict=True):
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "torchenv", *command],
                env={**os.environ, "TORCHENV_HOME": str(root)},
                cwd=root,
                stdout=subprocess.DEVNULL,
                check=True,
            )
            taken.append(time.perf_counter() - began)
    return [statistics.median(each) for each in times]


if __name__ == "__main__":
    sys.exit(main())
