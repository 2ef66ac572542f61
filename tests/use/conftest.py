"""A workshop for each test: its own index, its own cache and an empty workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.index import Index, serving
from tests.support.workshop import Workshop
from tests.support.workspace import Workspace
from tests.support.world import world


@pytest.fixture
def index() -> Iterator[Index]:
    with serving(world()) as served:
        yield served


@pytest.fixture
def workshop(index: Index, tmp_path: Path) -> Workshop:
    home = tmp_path / "home"
    home.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "UV_CACHE_DIR": str(tmp_path / "cache")}
    return Workshop(index, tmp_path / "workspace", environ)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)
