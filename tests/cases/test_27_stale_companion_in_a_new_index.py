"""A new index that has an audio package three years old: absent, said before anything is fetched."""

from __future__ import annotations

import sys

from tests.support.index import Index
from tests.support.terminal import Terminal
from tests.support.wheels import Wheel


def test_a_fossil_is_no_companion(terminal: Terminal, index: Index) -> None:
    for place in index.places():
        if place.startswith("whl/"):
            index.remove(place, "torchaudio")
    index.add("whl/cpu", Wheel(name="torchaudio", version="2.2.0", requires=("torch",)))
    profile = 'schema = 1\n[torch]\npackages = ["torchvision", "torchaudio"]\n'
    (terminal.cwd / "torchenv.toml").write_text(profile, "utf-8")
    ended = terminal.type("create", "2.15", "--backend", "cpu", "--python", sys.executable)
    assert ended.code == 3
    assert "torchaudio" in ended.err
    assert index.backend("cpu") in ended.err
    assert "hint: leave torchaudio out, or take another backend or an index that has it" in ended.err
    assert index.wheels_fetched() == []
    assert terminal.built() == []
