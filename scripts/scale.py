"""How cost grows: a fleet of 10,000 hosts, a workspace of 500 environments and 1,000,000 saves, a bucket.

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
from typing import Any

TOP = Path(__file__).parents[1]
sys.path.insert(0, str(TOP))

from tests.support.workspace import Workspace  # noqa: E402 - found from the top

from torchenv.checkpoints.scan import scan  # noqa: E402 - as above
from torchenv.storage.objects import ObjectPlace  # noqa: E402 - as above
from torchenv.workspace.records import Run  # noqa: E402 - as above

HOSTS = TOP / "tests" / "data" / "hosts"
TORCHENV = str(Path(sys.executable).with_name("torchenv"))
SAMPLE = TOP / "tests" / "data" / "checkpoints" / "cases" / "dcp-2.15.0"
PAGE = TOP / "docs" / "scale.md"
MIB = 1 << 20
# How many objects a store lists in one answer, and the seconds that an answer takes.
LISTED_AT_ONCE, ANSWER = 1000, 0.02


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
    parser.add_argument("--bucket", type=int, help="scan a bucket of this many objects, and nothing else")
    options = parser.parse_args()
    if options.bucket:
        print(json.dumps(scan_bucket(options.bucket)))
        return 0
    part = 100 if options.quick else 1
    found = []
    with tempfile.TemporaryDirectory(prefix="torchenv-scale-") as place:
        costs = (
            *fleet(Path(place, "fleet"), part),
            *workspace(Path(place, "workspace"), part),
            *buckets(Path(place), part),
        )
        for cost in costs:
            print(
                f"{cost.what}, {cost.size}: {cost.seconds:.2f} s, {cost.peak / MIB:.0f} MiB {cost.said}",
                flush=True,
            )
            found.append(cost)
    if options.write:
        # What people make of the figures is theirs, and stays below the table.
        _, bends, judged = PAGE.read_text("utf-8").partition("\n## Where it bends\n")
        PAGE.write_text("\n".join(page(found)) + "\n" + bends + judged, "utf-8")
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


def buckets(place: Path, part: int) -> Iterator[Cost]:
    """Yield what a first scan of a bucket costs, which answers at once, and what its answers would take."""
    for count in (100_000 // part, 1_000_000 // part):
        command = [sys.executable, __file__, "--bucket", str(count)]
        begun = time.perf_counter()
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - begun
        scanned = json.loads(done.stdout)
        waited = (scanned["listings"] + scanned["reads"] / ObjectPlace.at_once) * ANSWER
        said = f"{scanned['listings']:,} listings, {scanned['reads']:,} reads: {waited:,.0f} s of waiting"
        peak = scanned["peak"]
        yield Cost("`checkpoints scan` of a bucket", f"{count:,} objects", seconds, peak, said)


def scan_bucket(count: int) -> dict[str, int]:
    """Scan a made-up bucket, of saves with a `.metadata` and nine shards each; return what it took."""
    bucket = Bucket(count, (SAMPLE / ".metadata").read_bytes())
    index = scan([ObjectPlace(bucket, "bucket", "made-up://bucket")], None, lambda _: None)
    assert sum(1 for _ in index) == count // Bucket.OF_A_SAVE
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"listings": bucket.listings, "reads": bucket.reads, "peak": peak}


class Bucket:
    """What fsspec is to a store, as far as a scan asks; it counts what would be asked of the store."""

    OF_A_SAVE = 10

    def __init__(self, count: int, metadata: bytes) -> None:
        self.listings = self.reads = 0
        self._count, self._metadata = count, metadata

    def invalidate_cache(self) -> None:
        """Forget nothing: nothing is kept."""

    def find(self, path: str, *, detail: bool) -> dict[str, dict[str, Any]]:
        """List all of it, with what s3fs tells of each object."""
        assert detail
        self.listings += -(-self._count // LISTED_AT_ONCE)
        when = datetime(2026, 11, 1, tzinfo=UTC)
        found = {}
        for number in range(self._count):
            save, of_it = divmod(number, self.OF_A_SAVE)
            name = f"__{of_it - 1}_0.distcp" if of_it else ".metadata"
            key = f"{path}/run-{save // 1000:05}/step-{save % 1000}/{name}"
            size = 4096 if of_it else len(self._metadata)
            found[key] = {
                "Key": key,
                "name": key,
                "type": "file",
                "Size": size,
                "size": size,
                "LastModified": when,
                "ETag": f'"{number:032x}"',
                "StorageClass": "STANDARD",
            }
        return found

    def isfile(self, _path: str) -> bool:
        """Say of every key that it is none: a scan asks this of the place as a whole."""
        return False

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return a part of the `.metadata`; nothing else is read of a save."""
        assert path.endswith("/.metadata")
        self.reads += 1
        return self._metadata[start:end]


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
