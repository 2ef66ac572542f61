"""What verify and smoke cost on a real environment, against the least that the same work takes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Iterator
from functools import partial

from scripts.bench.measuring import TORCHENV, Bench, Row, compare, fresh, seconds


def measure(bench: Bench) -> Iterator[Row]:
    """Yield the rows of verify and smoke."""
    directory = bench.environment
    listed = json.loads(bench.run([*TORCHENV, "list", "--json"], cwd=bench.project))
    number = str(listed["environments"][-1]["number"])
    files = [str(path) for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    yield Row(
        what=f"`verify` of {len(files):,} files",
        against="`sha256sum` of them, on every core",
        values=compare(
            bench,
            partial(bench.run, [*TORCHENV, "verify", number], cwd=bench.project),
            lambda: sha256sum(files),
            rounds=3,
        ),
        bar=0.35,
        note="It also reads what each package lists, and compares the mode and the time of each file.",
    )
    smoke = partial(bench.run, [*TORCHENV, "smoke", number], cwd=bench.project)
    yield Row(
        what="`smoke`",
        against="`import torch` in the environment",
        values=compare(
            bench,
            smoke,
            partial(bench.run, [directory / "bin" / "python", "-I", "-c", "import torch"]),
            rounds=2,
        ),
    )
    yield Row(what="`smoke`, by the clock", against="", values=seconds(bench, smoke, rounds=1), unit="s")
    # Without a compiler on PATH nothing is compiled: what is left is what torchenv itself asks of torch.
    nothing = fresh(bench.directory / "no-programs")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    bench.run([*TORCHENV, "smoke", number], cwd=bench.project, variables={"PATH": str(nothing)})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    yield Row(
        what="`smoke`, of the processor, without torch.compile",
        against="",
        values=(used,),
        unit="s",
        bar=30.0,
    )


def sha256sum(files: list[str]) -> None:
    """Sum as many files at a time as there are cores."""
    subprocess.run(
        ["xargs", "-0", "-n", "200", "-P", str(os.cpu_count()), "sha256sum"],
        input="\0".join(files).encode(),
        stdout=subprocess.DEVNULL,
        check=True,
    )
