"""A roomy project, and a cache on a disk without room: said before anything is fetched, with its name."""

from __future__ import annotations

import random
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.support.index import Index
from tests.support.terminal import Terminal
from tests.support.wheels import Wheel
from tests.support.workshop import Workshop, recorded

import torchenv.actions.room
from torchenv.errors import ToolFailed
from torchenv.installers.cache import UvCache
from torchenv.system.disk import Disk


class TwoDisks(Disk):
    """A disk with room for environments, and another one with 200 KB for the cache."""

    def free_space(self, path: Path) -> int:
        return 200_000 if path.name == "cache" else 1 << 40


def test_room_is_looked_for_where_files_go_first(
    workshop: Workshop, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two file systems, which a test cannot mount.
    monkeypatch.setattr(torchenv.actions.room, "find_device", lambda path: path.name)
    cache = workshop.environ["UV_CACHE_DIR"]
    with pytest.raises(ToolFailed) as caught:
        workshop.create(recorded("rtx-4090-driver-580"), disk=TwoDisks())
    assert f"are needed for the cache {cache}," in caught.value.message
    assert caught.value.message.endswith("and 0.2 MiB are free on its disk")
    assert caught.value.hint == (
        "free some space there, or set UV_CACHE_DIR to a directory on a disk that has more"
    )
    # To choose, uv reads a part of torch's wheel, which has its metadata; no file was fetched whole.
    assert not any(UvCache(Path(cache)).holds(unquote(name)) for name in index.wheels_fetched())


def test_what_the_cache_has_needs_no_room(
    workshop: Workshop, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.create(recorded("rtx-4090-driver-580"))
    (torch,) = {name for name in index.wheels_fetched() if name.startswith("torch-2.15.0")}
    assert UvCache(Path(workshop.environ["UV_CACHE_DIR"])).holds(unquote(torch))
    monkeypatch.setattr(torchenv.actions.room, "find_device", lambda path: path.name)
    made = workshop.create(recorded("rtx-4090-driver-580"), disk=TwoDisks())
    assert made.environment.torch == "2.15.0+cu132"


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of Linux")
def test_a_cache_on_a_disk_that_is_small_for_real_is_named_and_what_is_active_stays(
    terminal: Terminal, index: Index, tmp_path: Path
) -> None:
    assert terminal.create().code == 0
    text = b64encode(random.Random(1).randbytes(600_000)).decode()
    index.add("simple", Wheel(name="transformers", version="4.57.0", files={"transformers.py": text}))
    (terminal.cwd / "requirements.txt").write_text("numpy\ntransformers\n", "utf-8")
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(small)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may mount nothing")
    try:
        ended = terminal.create("--from", "requirements.txt", "--use", UV_CACHE_DIR=str(small))
    finally:
        subprocess.run(["umount", str(small)], check=True)
    code, said = ended.error
    assert code == 4
    assert f"are needed for the cache {small}, and " in said
    assert " are free on its disk" in said
    assert not any("transformers" in name for name in index.wheels_fetched())
    environments = terminal.type("list", "--json").json
    assert (environments["current"], len(environments["environments"])) == (1, 1)
