"""What an audit of real packages takes, against byte-compiling and against linting the same files."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from scripts.bench.measuring import TORCHENV, Bench, Row, compare, fresh


def measure(bench: Bench) -> Iterator[Row]:
    """Yield the rows of audit over ten thousand Python files of real packages."""
    corpus = fresh(bench.directory / "auditing")
    site = next(bench.environment.glob("lib/python*/site-packages"))
    count = copy_python(site, corpus, bench.size(10_000, 500))
    audit = partial(bench.run, [*TORCHENV, "audit", corpus])
    compileall = partial(bench.run, [sys.executable, "-m", "compileall", "-f", "-q", "-j0", corpus])
    ruff = partial(
        bench.run, [Path(sys.executable).with_name("ruff"), "check", "--no-cache", "--isolated", "-q", corpus]
    )
    for against, act, bar in (("`python -m compileall`", compileall, 0.6), ("`ruff check`", ruff, 4.0)):
        ratios = compare(bench, audit, act, rounds=3)
        note = "Only files that hold a word of a rule are parsed."
        yield Row(
            what=f"`audit` of {count:,} Python files", against=against, values=ratios, bar=bar, note=note
        )


def copy_python(folder: Path, corpus: Path, most: int) -> int:
    """Copy Python files with their folders, in the order of their names, and return how many."""
    files = sorted(folder.rglob("*.py"))[:most]
    for file in files:
        copy = corpus / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return len(files)
