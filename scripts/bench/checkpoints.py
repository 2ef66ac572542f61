"""What reading, judging and downgrading a large `.metadata` costs, against torch's own reader.

Each measurement is a process of its own; torch's import is not counted in its time, which is that of the
processor. A verdict sees that every chunk is covered and has a place.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from scripts.bench.measuring import TOP, TORCHENV, Bench, Row, compare, fresh

SOURCE = TOP / "src"
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


# The parts of a model repeat; no two shapes alike is the worst that a writer can do.
SHAPES = {"repeating": {"list": 0.24, "verdict": 0.2, "downgrade": 0.25}, "unique": {"verdict": 0.35}}
MEMORY = 512 * MIB
ACTS = {"list": LIST, "verdict": VERDICT, "downgrade": DOWNGRADE}


def measure(bench: Bench) -> Iterator[Row]:
    """Yield the rows of list, verdict and downgrade by the size and the kind of metadata."""
    python = bench.environment / "bin" / "python"
    work = fresh(bench.directory / "checkpoints")
    sizes = ((1_000, 8),) if bench.quick else ((1_000, 8), (100_000, 8))
    for tensors, chunks in sizes:
        for shapes, bars in SHAPES.items():
            file = work / f"{tensors}-{shapes}.metadata"
            make = TOP / "scripts" / "bench" / "make_metadata.py"
            bench.run([python, make, file, str(tensors), str(chunks), shapes])
            rounds = bench.rounds(3)
            theirs = [run(bench, python, START + TORCH + END, file) for _ in range(rounds)]
            for name, bar in bars.items():
                ours = [
                    run(bench, sys.executable, START + OURS + ACTS[name] + END, file) for _ in range(rounds)
                ]
                peak = max(found["peak"] for found in ours)
                yield Row(
                    what=f"{name} of {tensors:,} tensors in {chunks} chunks, {shapes} shapes",
                    against="torch's reader, time of the processor",
                    values=tuple(
                        mine["seconds"] / other["seconds"] for mine, other in zip(ours, theirs, strict=True)
                    ),
                    bar=bar if tensors == 100_000 else None,
                )
                if name == "verdict" and tensors == 100_000:
                    what = f"memory of the verdict, {shapes} shapes"
                    yield Row(what=what, against="", values=(peak / MIB,), bar=MEMORY / MIB, unit="MiB")

    yield convert(bench, work)


# Saves as many tensors of a quarter of a MiB.
SAVE = """
import sys, torch, torch.distributed.checkpoint as dcp
state = {f"layer.{n}.weight": torch.full((256, 256), float(n)) for n in range(int(sys.argv[2]))}
dcp.save(state, checkpoint_id=sys.argv[1])
"""
# As torch's own documentation does it.
THEIRS = """
import sys
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save(sys.argv[1], sys.argv[2])
"""


def convert(bench: Bench, work: Path) -> Row:
    """Return the row of writing a save as one file; torchenv compares each tensor with what it wrote, too."""
    python = bench.environment / "bin" / "python"
    save, made = work / "step-1", work / "made.pt"
    count = bench.size(2000, 20)
    bench.run([python, "-c", SAVE, save, str(count)])

    theirs = partial(bench.run, [python, "-c", THEIRS, save, work / "theirs.pt"])

    def ours() -> None:
        made.unlink(missing_ok=True)
        bench.run([*TORCHENV, "checkpoints", "convert", save, made, "--to", "torch-save"], cwd=bench.project)

    return Row(
        what=f"`checkpoints convert --to torch-save` of {count:,} tensors, {count // 4:,} MiB, verified",
        against="`dcp_to_torch_save`, which verifies nothing",
        values=compare(bench, ours, theirs, rounds=3),
    )


def run(bench: Bench, python: str | Path, program: str, file: Path) -> dict[str, float]:
    """Run a program of its own, and return its seconds of the processor and its peak of bytes."""
    said = bench.run([python, "-c", program, file], variables={"PYTHONPATH": str(SOURCE)})
    found: dict[str, float] = json.loads(said)
    return found
