"""Training runs on disk, made of the measured samples."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from tests.checkpoints.support import CASES, SAMPLES

LONG_AGO = 1_790_000_000  # long enough for a directory's time to be trusted


def save(target: Path, sample: str) -> Path:
    """Copy a case (`dcp-2.15.0`) or a sample (`2.15.0/dcp_plain`) to where a training would have saved it."""
    shutil.copytree(SAMPLES / sample if "/" in sample else CASES / sample, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    settle(target.parent)
    return target


def settle(directory: Path) -> None:
    """Let all below have been changed long ago."""
    for path in (directory, *directory.rglob("*")):
        if not path.is_symlink():
            os.utime(path, (LONG_AGO, LONG_AGO))


def contents(directory: Path) -> dict[str, tuple[str, int]]:
    """Return the hash and the time of every file below, to see that nothing was touched."""
    return {
        str(path.relative_to(directory)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
