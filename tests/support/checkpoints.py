"""Training runs on disk, made of the measured samples, and a workspace beside them with two environments."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.checkpoints.support import CASES, SAMPLES

from torchenv.manifest import Manifest
from torchenv.record import BasePython
from torchenv.store import Store

AT = datetime(2026, 11, 30, 8, tzinfo=UTC)
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


def workspace(root: Path, *torches: str, python: str = "3.11.7") -> Store:
    """Record an environment for each torch; the last one is in use."""
    store = Store(root)
    manifest = Manifest()
    for torch in torches:
        path = root.parent / f"env-{torch}"
        site = path / "lib" / "python3.11" / "site-packages"
        version = torch.partition("+")[0]
        (site / f"torch-{version}.dist-info").mkdir(parents=True)
        (site / f"torch-{version}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: torch\nVersion: {version}\n"
        )
        (site / "torch").mkdir()
        (site / "torch" / "version.py").write_text(f"__version__ = '{torch}'\n")
        (path / "bin").mkdir()
        (path / "bin" / "python").write_text("")
        (path / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {python}\n")
        manifest, environment = manifest.adopt(
            f"{torch}-py3.11".replace("+", "-"),
            path=path,
            python=BasePython(python, "/usr/bin/python3.11"),
            at=AT,
            torch=torch,
        )
        manifest = manifest.use(environment.number, why="use", at=AT)
    with store.locked("test"):
        store.write(manifest)
    return store


def contents(directory: Path) -> dict[str, tuple[str, int]]:
    """Give the hash and the time of every file below, to see that nothing was touched."""
    return {
        str(path.relative_to(directory)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def wait_for_times() -> None:
    """Wait until a change of now has another time than the one before."""
    time.sleep(0.02)
