"""What the checks of `torchenv smoke` cost in processor time, beside what torch.compile takes.

    python scripts/bench/smoke.py ENVIRONMENT

ENVIRONMENT is a venv with torch; it is only read. The checks run once without a C++ compiler on PATH, where
torch.compile is skipped. Prints one JSON document; the goal is 30 s of processor time at most.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GOAL_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description="time the checks of smoke")
    parser.add_argument("environment", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        run(Path(place), "adopt", str(options.environment.absolute()))
        before, began = measure_children(), time.perf_counter()
        document = run(Path(place), "smoke", "--json")
        cpu, wall = measure_children() - before, time.perf_counter() - began
    steps = {step["name"]: step["seconds"] for step in document["steps"]}
    result = {
        "cpu_s": round(cpu, 1),
        "wall_s": round(wall, 1),
        "goal_s": GOAL_S,
        "cores": os.cpu_count(),
        "passed": document["passed"],
        "steps": steps,
    }
    print(json.dumps(result, indent=1))
    return 0 if cpu <= GOAL_S and document["passed"] else 1


def measure_children() -> float:
    """Return the processor time of all programs that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(place: Path, *words: str) -> Any:
    """Run a command in a workspace of its own, where no compiler is found; return its document."""
    environ = {**os.environ, "PATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "torchenv", "--root", str(place / "workspace"), *words]
    done = subprocess.run(command, cwd=place, env=environ, check=False, capture_output=True, text=True)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout) if "--json" in words else done.stdout


if __name__ == "__main__":
    sys.exit(main())
