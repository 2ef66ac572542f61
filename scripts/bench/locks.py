"""What locking and an idle sync cost, against the bare uv runs that are needed; measured by locking.py."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.measuring import TOP, Bench, Row

# What keeps these from their bars.
_NOTES = {
    "one": "Start-up, the profile and reading the lock again come once, whatever is locked.",
    "many": "Each lock file is read again and checked, and its twenty targets are planned.",
    "check": (
        "The profile, the lock files of all targets and the files that they were made from are read and"
        " compared; `--version` reads nothing."
    ),
    "sync": (
        "Nearly half is the probe, which asks the driver's tools each time: a remembered answer would not see"
        " a device that came or went, and was not taken for that."
    ),
}


def measure(bench: Bench) -> Iterator[Row]:
    """Yield the rows of lock and sync on a loopback index."""
    command: list[str | Path] = [
        sys.executable,
        TOP / "scripts" / "bench" / "locking.py",
        "--repeat",
        str(bench.rounds(5)),
    ]
    found = json.loads(bench.run(command))
    for name, what, against in (
        ("one", "`lock` of one target, 50 packages", "one `uv pip compile`"),
        ("lock", "`lock` of six targets", "six `uv pip compile` side by side"),
        (
            "many",
            "`lock` of twenty targets, 300 packages, time of the processor",
            "its twenty `uv pip compile`",
        ),
        ("check", "`lock --check`, nothing changed", "`torchenv --version`"),
        ("sync", "`sync`, nothing to do", "`torchenv --version`"),
    ):
        value, bar = found["ratios"][name], found["goals"][name]
        yield Row(what=what, against=against, values=(value,), bar=bar, note=_NOTES.get(name, ""))
