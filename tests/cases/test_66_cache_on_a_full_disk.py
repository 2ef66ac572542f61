"""A roomy project, and a cache on a disk without room: said before anything is fetched, with its name."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.support.index import Index
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
