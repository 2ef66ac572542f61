"""What tests are handed: a loopback index, the real uv, a workshop, a team, a terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.index import Index, serving
from tests.support.project import Project
from tests.support.sysroot import Sysroot
from tests.support.terminal import Terminal
from tests.support.workshop import Workshop
from tests.support.workspace import Workspace
from tests.support.world import world

from torchenv.installers import LockRequest
from torchenv.installers.uv import Uv, uv_program
from torchenv.system.process import Programs

# A run under nohup, or in the background of a script, ignores them, and so would every program a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

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


@pytest.fixture
def workshop(index: Index, tmp_path: Path) -> Workshop:
    home = tmp_path / "home"
    home.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "UV_CACHE_DIR": str(tmp_path / "cache")}
    return Workshop(index, tmp_path / "workspace", environ)


@pytest.fixture
def team(index: Index, workshop: Workshop, tmp_path: Path) -> Project:
    """A project whose targets are a team's machines."""
    return Project(tmp_path / "project", index, {**workshop.environ, "PIP_CACHE_DIR": str(tmp_path / "pip")})


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def terminal(index: Index, tmp_path: Path) -> Terminal:
    return Terminal.within(tmp_path, index)


@pytest.fixture
def machine(tmp_path: Path) -> Sysroot:
    return Sysroot.within(tmp_path)
