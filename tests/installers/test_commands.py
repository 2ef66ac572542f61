"""What is asked of uv and pip reads as a sentence."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from torchenv.errors import ToolFailed
from torchenv.installers import LockRequest
from torchenv.installers.pip import pip_command, virtualenv_command
from torchenv.installers.uv import (
    fetch_python_command,
    install_command,
    lock_command,
    project,
    survey_command,
    venv_command,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the paths are POSIX ones")

UV = Path("uv")
TORCH = "https://mirror.example/whl/rocm7.14"
SIMPLE = "https://mirror.example/simple"

REQUEST = LockRequest(
    requirements=("torch==2.15.0+rocm7.14",),
    packages=("lightning>=2.5",),
    torch_index=TORCH,
    package_index=SIMPLE,
    family=frozenset({"triton-rocm"}),
    python="3.12",
    interpreter=Path("/usr/bin/python3.12"),
    platform="linux-x86_64",
)


def test_uv_is_told_what_to_lock_for() -> None:
    assert str(lock_command(UV, Path("/plan"), REQUEST)) == (
        "cd /plan && UV_HTTP_CONNECT_TIMEOUT=5 UV_HTTP_RETRIES=1 UV_HTTP_TIMEOUT=10"
        " uv pip compile pyproject.toml --no-config --no-python-downloads --no-header --no-annotate"
        " --python /usr/bin/python3.12"
        " --python-version 3.12 --python-platform x86_64-unknown-linux-gnu"
        f" --default-index {SIMPLE} --format pylock.toml --no-build"
    )


def test_uv_is_told_of_dates_that_do_not_bind_torch() -> None:
    dated = replace(REQUEST, exclude_newer=date(2026, 11, 1))
    assert str(lock_command(UV, Path("/plan"), dated)).endswith(
        " --exclude-newer 2026-11-01T00:00:00Z --exclude-newer-package torch=false"
        " --exclude-newer-package triton-rocm=false"
    )


def test_uv_is_told_of_the_oldest_macos() -> None:
    mac = replace(REQUEST, platform="darwin-arm64", macos="14.0", interpreter=None, constraints=("numpy<3",))
    command = lock_command(UV, Path("/plan"), mac)
    assert command.env["MACOSX_DEPLOYMENT_TARGET"] == "14.0"
    assert " ".join(command.argv).startswith(
        "uv pip compile pyproject.toml --constraints constraints.txt --no-config --no-python-downloads"
        f" --no-header --no-annotate --python {sys.executable} --python-version 3.12"
        " --python-platform aarch64-apple-darwin"
    )


def test_only_an_interpreter_tells_uv_of_free_threads() -> None:
    free = replace(REQUEST, python="3.14", free_threaded=True, interpreter=None)
    assert "--python 3.14t --python-version 3.14" in str(lock_command(UV, Path("/plan"), free))


def test_a_platform_that_uv_does_not_know_is_refused() -> None:
    with pytest.raises(ToolFailed, match="uv cannot lock for the platform linux-s390x"):
        lock_command(UV, Path("/plan"), replace(REQUEST, platform="linux-s390x"))


def test_the_survey_asks_both_indexes_alike() -> None:
    assert str(survey_command(UV, Path("/plan"), REQUEST)).endswith(
        f" --default-index {SIMPLE} --index {TORCH} --index-strategy unsafe-best-match --no-build"
    )


def test_the_project_binds_the_family_to_torchs_index_and_lists_it() -> None:
    assert (
        project(REQUEST, frozenset({"torch", "triton-rocm"}))
        == f"""\
[project]
name = "plan"
version = "0"
dependencies = [
    "torch==2.15.0+rocm7.14",
    "triton-rocm",
    "lightning>=2.5",
]

[[tool.uv.index]]
name = "torch"
url = "{TORCH}"
explicit = true
ignore-error-codes = [403]

[tool.uv.sources]
torch = {{ index = "torch" }}
triton-rocm = {{ index = "torch" }}
"""
    )


def test_uv_makes_and_fills_an_environment() -> None:
    assert str(venv_command(UV, Path("/w/envs/3"), Path("/usr/bin/python3.12"))) == (
        "uv venv --no-config --no-project --no-python-downloads --python /usr/bin/python3.12 /w/envs/3"
    )
    filled = install_command(
        UV, Path("/w/envs/3"), Path("/w/locks/pylock.3.toml"), indexes=(SIMPLE, TORCH), link_mode="clone"
    )
    assert str(filled) == (
        "UV_HTTP_CONNECT_TIMEOUT=5 uv pip sync /w/locks/pylock.3.toml --strict"
        " --no-config --no-python-downloads --preview-features pylock --python /w/envs/3/bin/python"
        f" --default-index {SIMPLE} --index {TORCH} --link-mode clone"
    )


def test_uv_fetches_an_interpreter_into_its_own_store() -> None:
    assert str(fetch_python_command(UV, "3.14t")) == (
        "UV_HTTP_CONNECT_TIMEOUT=5 UV_HTTP_RETRIES=1 UV_HTTP_TIMEOUT=10"
        " uv python install --no-config --no-bin --no-registry 3.14t"
    )


def test_virtualenv_and_pip_make_and_fill_an_environment() -> None:
    assert str(virtualenv_command(Path("/w/envs/3"), Path("/usr/bin/python3.12"))) == (
        f"{sys.executable} -I -m virtualenv --no-seed --no-periodic-update"
        " --python /usr/bin/python3.12 /w/envs/3"
    )
    filled = pip_command(
        Path("/pip.whl"), Path("/w/envs/3"), Path("/t/requirements.txt"), indexes=(SIMPLE, TORCH)
    )
    assert str(filled) == (
        "PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1"
        " /w/envs/3/bin/python -I /pip.whl/pip install --requirement /t/requirements.txt"
        f" --require-hashes --no-deps --no-compile --index-url {SIMPLE} --extra-index-url {TORCH}"
    )
