"""What every measurement is made of: two things done in turn, and the ratios of their rounds."""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from torchenv.installers.uv import uv_program
from torchenv.system.process import scrub_environ

TOP = Path(__file__).parents[2]
PYTHON = [sys.executable, "-I"]
TORCHENV = [str(Path(sys.executable).with_name("torchenv"))]
UV = [str(uv_program()), "--no-config"]
TORCH = "2.15.0"
OLD_TORCH = "2.14.1"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: what was measured in units of what, round by round, and how far it may go.

    `unit` says in what the values are, where they are not ratios to `against`. A note says what the
    number alone does not: what was tried where the bar is missed.
    """

    what: str
    against: str
    values: tuple[float, ...]
    bar: float | None = None
    unit: str = "times"
    note: str = ""

    @property
    def median(self) -> float:
        """The middle of the rounds."""
        return statistics.median(self.values)

    @property
    def is_missed(self) -> bool:
        """Whether the median lies above the bar."""
        return self.bar is not None and self.median > self.bar


@dataclass(frozen=True)
class Bench:
    """Where and how the measurements run: in `directory`, short (`quick`) or in full."""

    directory: Path
    quick: bool
    environ: Mapping[str, str] = field(default_factory=lambda: scrub_environ(os.environ))

    def rounds(self, count: int) -> int:
        """Return how often to measure: once where only the running is of interest."""
        return 1 if self.quick else count

    def size(self, full: int, quick: int) -> int:
        """Return the size of what is measured."""
        return quick if self.quick else full

    def run(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Run a program and return what it printed; a failure ends the benchmark and shows why."""
        done = subprocess.run(
            list(map(str, command)),
            cwd=cwd or self.directory,
            env={**self.environ, **(variables or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in {0, 1}:
            sys.exit(f"{command} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done.stdout

    @cached_property
    def project(self) -> Path:
        """A project whose workspace holds real environments."""
        made = self.directory / "project"
        (made / ".git").mkdir(parents=True, exist_ok=True)
        return made

    @cached_property
    def environment(self) -> Path:
        """A real environment of torchenv's own, built from the package index."""
        self.run([*TORCHENV, "create", TORCH], cwd=self.project)
        listed = json.loads(self.run([*TORCHENV, "list", "--json"], cwd=self.project))
        return Path(listed["environments"][-1]["path"])


def compare(
    bench: Bench,
    measured: Callable[[], object],
    against: Callable[[], object],
    *,
    rounds: int,
    cpu: bool = False,
) -> tuple[float, ...]:
    """Return the ratio of each round, in which both take their turn: a busy moment strikes both.

    With `cpu` it is the time of the processor in programs that were started, not that of the clock.
    """
    measured(), against()  # so that nobody pays for a cold disk
    timer = _cpu_seconds if cpu else time.perf_counter
    ratios = []
    for _ in range(bench.rounds(rounds)):
        taken = []
        for act in (measured, against):
            begun = timer()
            act()
            taken.append(timer() - begun)
        ratios.append(taken[0] / taken[1])
    return tuple(ratios)


def seconds(bench: Bench, act: Callable[[], object], *, rounds: int) -> tuple[float, ...]:
    """Return the seconds of each round."""
    taken = []
    for _ in range(bench.rounds(rounds)):
        begun = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begun)
    return tuple(taken)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fresh(directory: Path) -> Path:
    """Return a directory that is empty, whatever was in it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory
