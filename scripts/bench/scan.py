"""Measure a scan of 10,000 checkpoint directories in which nothing changed against `find`, in one run.

    python scripts/bench/scan.py [DIRECTORY]

The tree is made in DIRECTORY, or in a temporary one: ten runs of 1,000 saves, each with a `.metadata` and two
shards. The second scan is the measured one: by the action, and by the whole command with Python's start.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from torchenv.actions.checkpoints import scan_and_record
from torchenv.storage import place
from torchenv.workspace.store import Store

SAMPLE = Path(__file__).parents[2] / "tests" / "data" / "checkpoints" / "cases" / "dcp-2.15.0"
RUNS, SAVES, REPEATS = 10, 1000, 5
MOST = 3.0  # times what `find` takes


def main(directory: Path) -> int:
    runs = directory / "runs"
    if not runs.is_dir():
        make(runs)
        # A directory that changed a moment ago is looked at again.
        time.sleep(2.5)
    store = Store(directory / ".torchenv")
    first, _ = timed(lambda: scanned(runs, store))
    print(f"first scan: {first:.2f} s for {RUNS * SAVES} checkpoints")
    scanned(runs, store)

    find = best(lambda: run(["find", str(runs)]))
    action = best(lambda: scanned(runs, store))
    command = [sys.executable, "-m", "torchenv", "checkpoints", "scan", "--root", str(store.root), str(runs)]
    whole = best(lambda: run(command))
    print(f"find: {find:.3f} s")
    print(f"unchanged scan: {action:.3f} s, {action / find:.2f} of find (at most {MOST})")
    print(f"the whole command: {whole:.3f} s, {whole / find:.2f} of find")
    return 0 if action <= MOST * find else 1


def scanned(runs: Path, store: Store) -> None:
    scan_and_record([place(runs)], store, whole=True, system="linux", say=lambda _: None)


def make(runs: Path) -> None:
    for run_number in range(RUNS):
        for save in range(SAVES):
            target = runs / f"run-{run_number}" / f"step-{save * 100}"
            shutil.copytree(SAMPLE, target)
            shutil.copyfile(target / "__0_0.distcp", target / "__1_0.distcp")


def run(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def best(act: Callable[[], None]) -> float:
    return min(timed(act)[0] for _ in range(REPEATS))


def timed(act: Callable[[], None]) -> tuple[float, None]:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start, None


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with TemporaryDirectory() as made:
        sys.exit(main(Path(made)))
