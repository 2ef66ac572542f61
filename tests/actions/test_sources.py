"""Files come into a directory whole, though several bring them at once or one was killed."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from torchenv.actions.sources import bring, count_brought
from torchenv.lockfile.lock import Lock

NAME = "filelock-3.20.0-py3-none-any.whl"
CONTENT = b"a wheel"
LOCK = Lock.parse(
    f"""
lock-version = "1.0"
created-by = "torchenv"
requires-python = ">=3.11"
[[packages]]
name = "filelock"
version = "3.20.0"
[[packages.wheels]]
name = "{NAME}"
url = "https://files.example/{NAME}"
size = {len(CONTENT)}
hashes = {{ sha256 = "{hashlib.sha256(CONTENT).hexdigest()}" }}
""",
    "pylock.toml",
)
MACHINE = {"python": "3.11", "platform": "linux-x86_64"}


def test_two_that_bring_the_same_file_at_once_do_not_meet(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=30)

    def download(_: str, path: Path, __: int | None) -> None:
        path.write_bytes(CONTENT[:2])
        both.wait()
        path.write_bytes(CONTENT)
        both.wait()

    brought: list[tuple[Path, ...]] = []
    threads = [
        threading.Thread(target=lambda: brought.append(bring(LOCK, tmp_path, download, print, **MACHINE)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert brought == [(tmp_path / NAME,)] * 2
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(NAME, CONTENT)]


def test_what_a_killed_run_left_counts_as_no_file_and_goes_after_a_day(tmp_path: Path) -> None:
    old, new = tmp_path / f".{NAME}.00000000.part", tmp_path / f".{NAME}.11111111.part"
    for path in (old, new):
        path.write_bytes(CONTENT[:3])
    os.utime(old, (1, 1))
    assert count_brought(LOCK, tmp_path, **MACHINE) == (3, len(CONTENT))
    bring(LOCK, tmp_path, lambda _, path, __: _write(path), print, **MACHINE)
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, NAME]
    assert count_brought(LOCK, tmp_path, **MACHINE) == (len(CONTENT), len(CONTENT))


def _write(path: Path) -> None:
    path.write_bytes(CONTENT)
