"""Runs what is asked for, and writes the table."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from scripts.faults.disks import run_disks
from scripts.faults.kills import run_kills
from scripts.faults.manifests import run_manifests
from scripts.faults.places import run_places
from scripts.faults.tally import Tally

Kind = Callable[[Path, int, int], Tally]

# Each kind with its tries: in the tests, and at full length.
KINDS: dict[str, tuple[Kind, int, int]] = {
    "kills": (run_kills, 12, 400),
    "disks": (run_disks, 8, 150),
    "manifests": (run_manifests, 300, 30_000),
    "places": (run_places, 14, 100),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=2152)
    parser.add_argument("--tries", type=int)
    parser.add_argument("--long", action="store_true")
    asked = parser.parse_args()
    failed = 0
    for name in asked.kinds or KINDS:
        run, few, many = KINDS[name]
        tries = asked.tries or (many if asked.long else few)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as directory:
            tally = run(Path(directory), tries, asked.seed)
        failed += len(tally.failures)
        print(
            f"{name}: {tally.count} tries, {len(tally.failures)} failures, {time.monotonic() - began:.0f} s"
        )
        for note in tally.notes:
            print(f"  {note}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
