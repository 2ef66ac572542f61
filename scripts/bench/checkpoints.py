"""Measure reading and downgrading a large `.metadata` against torch's own reader, as ratios in
one run.

    python scripts/bench/checkpoints.py FILE TORCH_PYTHON [repeating|unique]

FILE is what `make_metadata.py` wrote, with such shapes; TORCH_PYTHON is the Python of an environment with
torch 2.15. A `verdict` sees that every chunk is covered and has a place. Each measurement is a process of
its own; torch's import is not counted in its time, which is that of the processor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
MIB = 1 << 20
START = """
import gc, json, resource, sys, time
path = sys.argv[1]
"""
END = """
took = time.process_time() - begun
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": took, "peak": peak}))
"""
TORCH = """
import pickle, torch, torch.distributed.checkpoint.metadata, torch.distributed.checkpoint.filesystem
begun = time.process_time()
# What FileSystemReader.read_metadata does.
with open(path, "rb") as file:
    metadata = pickle.load(file)
"""
OURS = """
from torchenv.checkpoints import downgrade
from torchenv.checkpoints.formats import dcp
begun = time.process_time()
"""
READ = """
with open(path, "rb", buffering=0) as file:
    data = file.read()
"""
LIST = f"{READ}found = dcp.read_listing(data)"
VERDICT = """
from functools import partial
from torchenv.storage.tree import LocalTree
from pathlib import Path
file = Path(path)
found = dcp.check_metadata(partial(LocalTree(file).read, file.name), file.stat().st_size)
assert found is not None
"""
DOWNGRADE = f"{READ}found = downgrade.downgrade(data, '2.14')"


# Of what torch's reader takes: 4 million chunks are five times those of 100,000 tensors in 8 chunks.
VERDICTS = {"repeating": 0.2, "unique": 0.35}
VERDICT_MEMORY = 512 * MIB


def main(file: str, torch_python: str, shapes: str = "repeating") -> int:
    torch = least(torch_python, START + TORCH + END, file)
    show("torch read_metadata", torch, torch)
    failed = False
    for name, body, most_time, most_memory in (
        ("list", LIST, 0.35, 0.8 * torch["peak"]),
        ("verdict", VERDICT, VERDICTS[shapes], VERDICT_MEMORY),
        ("downgrade", DOWNGRADE, 0.6, 0.8 * torch["peak"]),
    ):
        found = least(sys.executable, START + OURS + body + END, file)
        show(name, found, torch)
        within = found["seconds"] <= most_time * torch["seconds"] and found["peak"] <= most_memory
        print(f"  at most {most_time} and {most_memory / MIB:.0f} MiB: {'yes' if within else 'NO'}")
        failed = failed or not within
    return failed


def least(python: str, program: str, file: str) -> dict[str, float]:
    """Return the run of three that took the least time: the machine may have other work, too."""
    return min((measure(python, program, file) for _ in range(3)), key=lambda run: run["seconds"])


def measure(python: str, program: str, file: str) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [python, "-c", program, file]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def show(name: str, found: dict[str, float], torch: dict[str, float]) -> None:
    seconds, peak = found["seconds"], found["peak"]
    ratios = f"{seconds / torch['seconds']:.2f} x time, {peak / torch['peak']:.2f} x peak"
    print(f"{name}: {seconds:.1f} s, {peak / MIB:.0f} MiB ({ratios})")


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
