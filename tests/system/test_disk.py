"""The disk takes what several put there at once."""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path

from torchenv.system.disk import Disk


def put_again_and_again(path: Path) -> None:
    for _ in range(300):
        Disk().put(path, "the same from all\n")


def test_several_may_put_the_same_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pylock.ci.toml"
    with get_context("spawn").Pool(4) as pool:
        pool.map(put_again_and_again, [path] * 4)
    assert path.read_text("utf-8") == "the same from all\n"
    assert list(tmp_path.iterdir()) == [path]
