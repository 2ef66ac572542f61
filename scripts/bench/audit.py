"""How long an audit takes beside byte-compiling the same files on the same cores.

    python scripts/bench/audit.py FOLDER [--most 10000] [--repeat 3]

FOLDER holds Python files: the site-packages of an environment with torch serves. The files are
copied first, so that both programs read the same warm files and nothing of yours is written.
Prints one JSON document; the goal is a ratio of at most 1.5.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from torchenv.actions.audit import audit
from torchenv.audit import read_breakages
from torchenv.catalogue import resources

GOAL = 1.5


def main() -> int:
    parser = argparse.ArgumentParser(description="time an audit beside compileall")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=10_000, help="how many Python files to take")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        corpus = Path(place)
        count = copy_python(options.folder, corpus, options.most)
        breakages = read_breakages(resources.section("audit"), resources.catalogue())
        findings = len(audit([corpus], breakages).findings)
        audits, compiles = best(
            options.repeat, lambda: audit([corpus], breakages), lambda: compile_all(corpus)
        )
    ratio = audits / compiles
    result = {
        "files": count,
        "cores": os.cpu_count(),
        "findings": findings,
        "audit_s": round(audits, 2),
        "compileall_s": round(compiles, 2),
        "ratio": round(ratio, 3),
        "goal": GOAL,
    }
    print(json.dumps(result))
    return 0 if ratio <= GOAL else 1


def copy_python(folder: Path, corpus: Path, most: int) -> int:
    """Copy Python files with their folders, in the order of their names."""
    files = sorted(folder.rglob("*.py"))[:most]
    for file in files:
        copy = corpus / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return len(files)


def compile_all(corpus: Path) -> None:
    command = [sys.executable, "-m", "compileall", "-f", "-q", "-j0", str(corpus)]
    # Some files of real packages are for other Pythons: those errors are part of the work.
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


def best(repeat: int, *works: Callable[[], object]) -> list[float]:
    """Return the shortest run of each in seconds; they take turns, so that a busy hour hits all."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeat):
        for work, taken in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


if __name__ == "__main__":
    sys.exit(main())
