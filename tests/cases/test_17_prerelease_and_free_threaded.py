"""Interpreters of which the newest, the free-threaded and the oldest have no wheel of each package."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.index import Index, serving
from tests.support.terminal import Ended, Terminal
from tests.support.wheels import Wheel
from tests.support.workshop import HOSTS

from torchenv.host.model import Host


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal.within(tmp_path)


def plan(terminal: Terminal, *words: str) -> Ended:
    return terminal.type("plan", "2.15", "--host", HOSTS / "free-threaded-pythons.json", *words)


def test_an_ordinary_interpreter_is_taken_and_why_no_other_is_said(terminal: Terminal) -> None:
    assert plan(terminal, "--json").json["python"]["path"] == "/usr/bin/python3.12"
    read = plan(terminal, "--explain").out
    assert "Python 3.10 (/usr/bin/python3.10): torch 2.15.0 requires Python >=3.11" in read
    assert "Python 3.13t (/usr/bin/python3.13t): torch 2.15.0 has no wheel for Python 3.13t" in read
    assert "Python 3.15t (/usr/bin/python3.15t): is free-threaded, which is used only when asked for" in read


def test_for_torch_alone_the_newest_does_and_its_wheel_is_that_of_pytorchs_index(terminal: Terminal) -> None:
    planned = plan(terminal, "--python", "3.15", "--json").json
    assert planned["python"]["version"].startswith("3.15")
    assert planned["index"].endswith("/whl/cu132")


def test_an_interpreter_for_which_the_index_lacks_the_vision_wheel_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index()
    linux = "manylinux_2_28_x86_64"
    for number in (311, 312, 313, 314, 315):
        tag = f"cp{number}-cp{number}-{linux}"
        index.add("whl/cu132", Wheel(name="torch", version="2.15.0+cu132", tag=tag))
        if number < 315:
            index.add("whl/cu132", Wheel(name="torchvision", version="0.29.2+cu132", tag=tag))
    host = Host.from_json((HOSTS / "free-threaded-pythons.json").read_text("utf-8"), "host")
    monkeypatch.setattr("torchenv.host.probe.probe", lambda *_, **__: host)
    with serving(index):
        terminal = Terminal.within(tmp_path, index)
        profile = 'schema = 1\n[torch]\npackages = ["torchvision"]\n'
        (terminal.cwd / "torchenv.toml").write_text(profile, "utf-8")
        assert terminal.type("plan", "2.15", "--json").json["python"]["path"] == "/usr/bin/python3.12"
        refused = terminal.type("plan", "2.15", "--python", "3.15", "--json")
    assert refused.code == 3
    lacking = next(line for line in refused.json["rejected"] if line["backend"] == "cu132")
    assert lacking["code"] == "index-lacks-package"
    assert lacking["message"].startswith("torchvision: ")
    assert "torchvision==0.29.2 for Python 3.15" in lacking["message"]
