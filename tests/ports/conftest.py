"""The real uv against a loopback index, with a cache of its own and nothing inherited."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.index import Index, serving
from tests.support.world import world

from torchenv.installers import LockRequest
from torchenv.installers.uv import Uv, uv_program
from torchenv.process import Programs

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def index() -> Iterator[Index]:
    with serving(world()) as served:
        yield served


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    cache = str(tmp_path / "cache")
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
    return {**kept, "HOME": str(home), "UV_CACHE_DIR": cache, "PIP_CACHE_DIR": f"{cache}-pip"}


@pytest.fixture
def uv(environ: dict[str, str]) -> Uv:
    return Uv(Programs(environ), program=uv_program())


@pytest.fixture
def request_for(index: Index) -> Callable[..., LockRequest]:
    """Ask for torch of one backend, with what the test adds."""

    def build(backend: str = "cu132", **more: object) -> LockRequest:
        asked: dict[str, object] = {
            "requirements": (f"torch==2.15.0+{backend}",),
            "torch_index": index.backend(backend),
            "package_index": index.packages,
            "python": PYTHON,
            "interpreter": Path(sys.executable),
            "platform": "linux-x86_64",
        }
        return LockRequest(**{**asked, **more})  # type: ignore[arg-type]

    return build
