"""`doctor` takes any environment, prints one document, and exits 1 where it found something."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest
from tests.support.terminal import Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal.within(tmp_path)


def test_an_environment_by_its_path_is_diagnosed(terminal: Terminal) -> None:
    venv.create(terminal.cwd / "env", symlinks=True)
    done = terminal.type("doctor", "env")
    said = f"{terminal.cwd / 'env'}: holds no torch; run `torchenv create` [no-torch]\n"
    assert (done.code, done.out) == (1, said)
    document = terminal.type("doctor", "env", "--json").json
    assert (document["schema"], document["well"]) == ("torchenv.doctor/1", False)


def test_what_is_neither_an_environment_nor_a_path_is_named(terminal: Terminal) -> None:
    done = terminal.type("doctor", "nowhere")
    assert (done.code, done.out) == (2, "")
    assert "nowhere" in done.err
