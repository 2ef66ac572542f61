"""A terminal for each test, with a loopback index behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.index import Index, serving
from tests.support.terminal import Terminal
from tests.support.world import world


@pytest.fixture
def index() -> Iterator[Index]:
    with serving(world()) as served:
        yield served


@pytest.fixture
def terminal(index: Index, tmp_path: Path) -> Terminal:
    return Terminal.within(tmp_path, index)
