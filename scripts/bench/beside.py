"""How long a rollback takes while an environment is being built, as a ratio to what it takes alone.

    python scripts/bench/beside.py

Three wheels of the new environment come slowly from a loopback index, and the real uv waits for them.
Both are measured in the same run.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.index import serving
from tests.support.loopback import Torchenv
from tests.support.world import world

ROUNDS = 9
LIMIT = 2.0

# Seconds that each of the wheels takes to come.
SLOW = 20.0


def main() -> int:
    """Measure both, and print the ratio."""
    with serving(world()) as index, tempfile.TemporaryDirectory(prefix="torchenv-bench-") as directory:
        torchenv = Torchenv(Path(directory), index)
        for version in ("2.15", "2.14"):
            torchenv.succeed("create", version, "--backend", "cpu", "--use")
        alone, beside = [measure(torchenv) for _ in range(ROUNDS)], []
        index.seconds_before_wheels = SLOW
        building = torchenv.start("create", "2.15", "--backend", "cu132")
        while not torchenv.store.read().list_unfinished():
            time.sleep(0.05)
        while not any(path.endswith(".whl") for path in index.requests[-3:]):
            time.sleep(0.05)
        for _ in range(ROUNDS):
            if building.poll() is not None:
                break
            beside.append(measure(torchenv))
        building.kill()
        building.communicate()
    ratio = statistics.median(beside) / statistics.median(alone)
    print(f"rollback alone: {statistics.median(alone):.2f} s (the median of {len(alone)})")
    print(f"rollback beside a create of slow wheels: {statistics.median(beside):.2f} s ({len(beside)})")
    print(f"{ratio:.2f} times that (at most {LIMIT:g})")
    return 0 if ratio <= LIMIT else 1


def measure(torchenv: Torchenv) -> float:
    """Return the seconds that one rollback takes."""
    began = time.perf_counter()
    torchenv.succeed("rollback")
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
