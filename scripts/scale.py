"""How cost grows: a fleet of 10,000 hosts, and a workspace of 500 environments and 1,000,000 saves.

    python scripts/scale.py [--quick] [--write]

Everything is generated in a temporary directory. `--write` puts the tables into docs/scale.md; `--quick` runs
it on a hundredth of the size, to see that it runs.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

TOP = Path(__file__).parents[1]
sys.path.insert(0, str(TOP))

from tests.support.workspace import Workspace  # noqa: E402 - found from the top

from torchenv.workspace.records import Run  # noqa: E402 - as above

HOSTS = TOP / "tests" / "data" / "hosts"
TORCHENV = str(Path(sys.executable).with_name("torchenv"))
PAGE = TOP / "docs" / "scale.md"
MIB = 1 << 20


@dataclass(frozen=True)
class Cost:
    """What one command took: seconds by the clock, and the most memory in bytes."""

    what: str
    size: str
    seconds: float
    peak: int
    said: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description="measure how cost grows")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the size")
    parser.add_argument("--write", action="store_true", help="write docs/scale.md")
    options = parser.parse_args()
    part = 100 if options.quick else 1
    found = []
    with tempfile.TemporaryDirectory(prefix="torchenv-scale-") as place:
        for cost in (*fleet(Path(place, "fleet"), part), *workspace(Path(place, "workspace"), part)):
            print(
                f"{cost.what}, {cost.size}: {cost.seconds:.2f} s, {cost.peak / MIB:.0f} MiB {cost.said}",
                flush=True,
            )
            found.append(cost)
    if options.write:
        PAGE.write_text("\n".join(page(found)) + "\n", "utf-8")
    return 0


def fleet(place: Path, part: int) -> Iterator[Cost]:
    """Yield what a plan for many hosts costs: the recorded ones again and again, each of its own name."""
    place.mkdir()
    recorded = [json.loads(path.read_text("utf-8")) for path in sorted(HOSTS.glob("*.json"))]
    for count in (1_000 // part, 10_000 // part):
        paths = []
        for number in range(count):
            host = dict(recorded[number % len(recorded)])
            # No two machines are alike in every field.
            host["captured_at"] = f"2026-11-30T{number % 24:02}:{number // 24 % 60:02}:00Z"
            path = place / f"node-{number:05}.json"
            path.write_text(json.dumps(host), "utf-8")
            paths.append(str(path))
        words = ["plan", "2.15", "--json", *(word for path in paths for word in ("--host", path))]
        yield measure("`plan --host` of a fleet", f"{count:,} hosts", words, place)


def workspace(place: Path, part: int) -> Iterator[Cost]:
    """Yield what short commands cost where a manifest has grown for years."""
    made = Workspace(place)
    environments, runs = 500 // min(part, 10), 10_000 // part
    for number in range(environments):
        made.built(f"2.{5 + number % 11}.0+cu132")
    readable = dict.fromkeys(range(environments - 4, environments + 1), "step-99")
    store = made.store
    with store.hold("scale"):
        manifest = store.read().record_runs(
            # A hundred saves each, of which the record holds the newest and the newest readable one.
            Run(
                path=f"runs/{number:05}",
                newest="step-100",
                newest_readable=readable,
            )
            for number in range(runs)
        )
        store.write(manifest)
    size = f"{environments} environments, {runs:,} runs of 100 saves"
    root = ["--root", str(store.root)]
    for words in (["list", "--json"], ["status", "--json"], ["use", "1"], ["rollback"]):
        yield measure(f"`{' '.join(words)}`", size, [*words, *root], place)


def measure(what: str, size: str, words: Sequence[str], cwd: Path) -> Cost:
    """Run one command in a process of its own; one that fails ends the measurement."""
    begun = time.perf_counter()
    command = [TORCHENV, *words]
    child = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = child.communicate()
    seconds = time.perf_counter() - begun
    if child.returncode not in {0, 3}:
        sys.exit(f"{what} ended with {child.returncode}: {err[-2000:]}")
    # The largest child so far: sizes grow from command to command.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    said = ""
    if what.startswith("`plan"):
        said = f"{len(json.loads(out).get('targets', ()))} targets"
    return Cost(what, size, seconds, peak, said)


def page(found: Sequence[Cost]) -> Iterator[str]:
    """Yield the lines of docs/scale.md."""
    yield "# How cost grows"
    yield ""
    yield f"Measured on {datetime.now(UTC):%d %B %Y} by `python scripts/scale.py --write` on"
    yield f"{os.cpu_count()} cores; what is measured is generated."
    yield "Memory is the most that any command had taken until then."
    yield ""
    yield "| What | Size | Seconds | Memory | |"
    yield "|---|---|---|---|---|"
    for cost in found:
        yield f"| {cost.what} | {cost.size} | {cost.seconds:.2f} | {cost.peak / MIB:.0f} MiB | {cost.said} |"


if __name__ == "__main__":
    sys.exit(main())
