"""Measure torchenv beside what people would use instead, as ratios within one run.

    python scripts/bench [SUBJECT ...] [--quick] [--write] [--quiet-machine]

Without SUBJECT everything is measured: about ten minutes on two cores and 15 GB in .build/bench, from the
real package index. `--quick` runs each once on small input and asserts nothing, for CI; `--write` puts the
table into docs/benchmarks.md; `--quiet-machine` says in it that nothing else was running.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

TOP = Path(__file__).parents[2]
sys.path.insert(0, str(TOP))

from scripts.bench.measuring import TORCH, UV, Bench, Row, fresh  # noqa: E402 - found from the top

# In this order: what comes later may use the environment that `creating` has built. Each with its heading.
SUBJECTS = {
    "startup": "Start-up",
    "creating": "Building an environment",
    "going_back": "Going back",
    "checkpoints": "Checkpoints",
    "scanning": "Looking through training runs",
    "locks": "Locks",
    "proving": "Proofs",
    "auditing": "The audit",
    "packing": "Packing",
}
PAGE = TOP / "docs" / "benchmarks.md"


def main() -> int:
    parser = argparse.ArgumentParser(description="measure torchenv beside what people would use instead")
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument("--quick", action="store_true", help="once, on small input")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--quiet-machine", action="store_true", help="nothing else is running")
    options = parser.parse_args()
    if unknown := set(options.subjects) - SUBJECTS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: choose of {', '.join(SUBJECTS)}")
    chosen = [name for name in SUBJECTS if name in (options.subjects or SUBJECTS)]
    bench = Bench(fresh(TOP / ".build" / "bench"), quick=options.quick)
    found: dict[str, list[Row]] = {}
    try:
        for name in chosen:
            subject = importlib.import_module(f"scripts.bench.{name}")
            for row in subject.measure(bench):
                print(f"{name}: {tell(row)}", flush=True)
                found.setdefault(name, []).append(row)
    finally:
        shutil.rmtree(bench.directory, ignore_errors=True)
    if options.write:
        PAGE.write_text(page(found, is_quiet=options.quiet_machine), "utf-8")
    return 0


def tell(row: Row) -> str:
    """Return a row as one line of text."""
    low, high = min(row.values), max(row.values)
    bar = f", at most {row.bar:g}: {'MISSED' if row.is_missed else 'held'}" if row.bar is not None else ""
    against = f" of {row.against}" if row.against else ""
    return f"{row.what}: {row.median:.3g} {row.unit} ({low:.3g} to {high:.3g}){against}{bar}"


def page(found: dict[str, list[Row]], *, is_quiet: bool) -> str:
    """Return the page of docs/ that holds the tables."""
    rows = [row for held in found.values() for row in held]
    missed = [row for row in rows if row.is_missed]
    other = "with nothing else running" if is_quiet else "beside other work, which makes ratios uneven"
    lines = [
        "# What torchenv costs beside what people would use instead",
        "",
        f"Measured on {datetime.now(UTC):%d %B %Y} by `python scripts/bench --write` in one run,",
        f"{machine()}, {other}. Versions: {versions()}.",
        "Ratios are of time by the clock, in rounds in which both sides take their turn. A number of this",
        "page says nothing about another machine.",
    ]
    for name, held in found.items():
        lines += ["", f"## {SUBJECTS[name]}", "", *table(held)]
    short = [f"- {row.what}: {row.median:.3g}, and {row.bar:g} was the aim. {row.note}" for row in missed]
    lines += ["", "## What falls short", "", *(short or ["Nothing did in this run."])]
    return "\n".join(lines) + "\n"


def table(rows: Sequence[Row]) -> Iterable[str]:
    yield "| What | Against | Median | Minimum | Maximum | At most |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        numbers = (f"{value:.3g} {row.unit}" for value in (row.median, min(row.values), max(row.values)))
        bar = "" if row.bar is None else f"{row.bar:g}{' (missed)' if row.is_missed else ''}"
        what, against = (text.replace("|", r"\|") for text in (row.what, row.against))
        yield f"| {what} | {against} | {' | '.join(numbers)} | {bar} |"


def machine() -> str:
    """Describe this machine: cores, processor, system, and the file system of the measurements."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    kind = subprocess.run(["stat", "-f", "-c", "%T", TOP], capture_output=True, text=True, check=False)
    return f"on {os.cpu_count()} cores of {model}, {platform.system()}, {kind.stdout.strip() or 'unknown'}"


def versions() -> str:
    uv = subprocess.run([*UV, "--version"], capture_output=True, text=True, check=False).stdout.split()[1]
    return f"Python {platform.python_version()}, uv {uv}, torch {TORCH}"


if __name__ == "__main__":
    sys.exit(main())
