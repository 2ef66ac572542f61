"""Run what is asked for: each kind of fault a few times, or with `--long` as often as the page on it says."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from scripts.faults.crowd import run_crowd
from scripts.faults.disks import run_disks
from scripts.faults.indexes import run_indexes
from scripts.faults.kills import run_kills
from scripts.faults.manifests import run_manifests
from scripts.faults.places import run_places
from scripts.faults.repositories import run_repositories
from scripts.faults.tally import Tally

# Each kind with its tries (of a crowd the seconds): a few, and all of them.
KINDS: dict[str, tuple[Callable[[Path, int, int], Tally], int, int]] = {
    "kills": (run_kills, 15, 400),
    "disks": (run_disks, 6, 150),
    "places": (run_places, 20, 110),
    "manifests": (run_manifests, 300, 30_000),
    "indexes": (run_indexes, 8, 100),
    "repositories": (run_repositories, 5, 50),
    "crowd": (run_crowd, 8, 60),
}


def main() -> int:
    """Run the kinds that were named, or all, and print what was tried and what failed."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--long", action="store_true", help="take about an hour")
    parser.add_argument("--seed", type=int, default=2152, help="what the chances begin with")
    parser.add_argument("--tries", type=int, help="how many of each kind")
    parser.add_argument("--results", type=Path, help="directory to write what was found to, for a table")
    asked = parser.parse_args()
    if unknown := set(asked.kinds) - KINDS.keys():
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    failed = 0
    for name in asked.kinds or KINDS:
        run, few, many = KINDS[name]
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as directory:
            tally = run(Path(directory), asked.tries or (many if asked.long else few), asked.seed)
        failed += len(tally.failures)
        print(
            f"{name}: {tally.count} tries, {len(tally.failures)} failures ({time.monotonic() - began:.0f} s)"
        )
        for note in tally.notes:
            print(f"  {note}")
        if asked.results is not None:
            asked.results.mkdir(parents=True, exist_ok=True)
            (asked.results / f"{name}-{asked.seed}.json").write_text(tally.to_json(), "utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
