"""An environment on disk to fill, the packaged catalogue, and files to read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.installed import Site

from torchenv.catalogue import resources
from torchenv.catalogue.releases import Catalogue


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / ".venv")


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return resources.catalogue()
