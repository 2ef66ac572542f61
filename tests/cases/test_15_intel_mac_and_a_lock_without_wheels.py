"""A Mac with an Intel processor, for which no wheel was made since the 2.2 line."""

from __future__ import annotations

import pytest
from tests.support.index import Index
from tests.support.terminal import Terminal
from tests.support.workshop import HOSTS


@pytest.mark.parametrize("version", ["2.15", "2.14"])
def test_it_is_told_at_once_and_no_index_is_asked(terminal: Terminal, index: Index, version: str) -> None:
    planned = terminal.type("plan", version, "--host", HOSTS / "intel-mac.json", "--json")
    assert planned.code == 3
    assert planned.json["outcome"] == "blocked"
    (reason,) = {
        line["message"] for line in planned.json["rejected"] if line["code"] == "platform-unsupported"
    }
    assert reason == "PyTorch has published no wheel for macOS x86_64 since 2.2.2"
    assert index.requests == []
    assert terminal.built() == []
