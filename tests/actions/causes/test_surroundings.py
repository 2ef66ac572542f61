"""What stands around an environment is found and said, as values."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.actions.causes.surroundings import find_surroundings
from torchenv.host.model import Problem

LOCK = """\
version = 1

[[package]]
name = "numpy"
version = "2.3.0"

[[package]]
name = "torch"
version = "2.15.0"
"""


def test_nothing_around_is_nothing_to_say(tmp_path: Path) -> None:
    assert find_surroundings({"PATH": "/usr/bin"}, tmp_path) == ()
    assert find_surroundings({}, None) == ()


def test_a_lock_that_would_bring_another_torch_back_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "uv.lock"
    lock.write_text(LOCK, "utf-8")
    assert find_surroundings({}, tmp_path, torch="2.14.1+cu126") == (
        Problem(
            "project-resync",
            str(lock),
            f"{lock} pins torch 2.15.0: `uv sync` installs that again, and so does every `uv run`;"
            " `uv run --no-sync` or UV_NO_SYNC=1 keeps what is there",
        ),
    )


def test_where_uv_run_was_told_not_to_sync_only_sync_itself_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "uv.lock"
    lock.write_text(LOCK, "utf-8")
    (problem,) = find_surroundings({"UV_NO_SYNC": "1"}, tmp_path)
    assert problem.message == (
        f"{lock} pins torch 2.15.0: `uv sync` installs that again; UV_NO_SYNC keeps `uv run` from it"
    )


def test_a_lock_that_holds_the_same_torch_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text(LOCK, "utf-8")
    assert find_surroundings({}, tmp_path, torch="2.15.0") == ()


@pytest.mark.parametrize("text", ["not a lock: torch", 'name = "torch"\n[[', LOCK.replace('"torch"', '"x"')])
def test_a_lock_that_says_nothing_of_torch_or_cannot_be_read_is_passed_over(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "uv.lock").write_text(text, "utf-8")
    assert find_surroundings({}, tmp_path) == ()


def test_condas_base_is_named_as_not_touched() -> None:
    environ = {"CONDA_PREFIX": "/home/u/miniforge3", "CONDA_DEFAULT_ENV": "base"}
    assert find_surroundings(environ, None) == (
        Problem(
            "conda-base-active",
            "CONDA_PREFIX",
            "conda's base environment /home/u/miniforge3 is active in this shell and is not touched",
        ),
    )
    assert find_surroundings({**environ, "CONDA_DEFAULT_ENV": "train"}, None) == ()


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONHOME"])
def test_a_variable_that_leads_python_elsewhere_is_named(name: str) -> None:
    assert find_surroundings({name: "/opt/lib"}, None) == (
        Problem(
            "python-path",
            name,
            f"{name} points every Python of this shell at /opt/lib; unset it first",
        ),
    )
