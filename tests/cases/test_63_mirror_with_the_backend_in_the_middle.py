"""A mirror whose pages lie at `…/{backend}/+simple/torch/` and nowhere else."""

from __future__ import annotations

import sys

import pytest
from tests.support.index import Index
from tests.support.terminal import Terminal

CHOICE = ("2.15", "--backend", "cpu", "--python", sys.executable)


@pytest.fixture
def devpi(index: Index) -> Index:
    for place in index.places():
        if place.startswith("whl/"):
            wheels = index.wheels(place)
            for project in {wheel.project for wheel in wheels}:
                index.remove(place, project)
            index.add(f"devpi/{place.removeprefix('whl/')}/+simple", *wheels)
    return index


def test_an_address_with_the_backend_in_it_names_such_a_mirror(terminal: Terminal, devpi: Index) -> None:
    template = f"{devpi.root}/devpi/{{backend}}/+simple"
    ended = terminal.create("--json", TORCHENV_TORCH_INDEX=template)
    assert ended.code == 0, ended.err
    assert ended.json["index"] == f"{devpi.root}/devpi/cpu/+simple"

    profile = f'schema = 1\n[index]\ntorch = "{template}"\n'
    (terminal.cwd / "torchenv.toml").write_text(profile, "utf-8")
    planned = terminal.type("plan", *CHOICE, "--json", TORCHENV_TORCH_INDEX="")
    assert planned.json["index"] == f"{devpi.root}/devpi/cpu/+simple"


def test_a_table_names_one_address_for_each_backend(terminal: Terminal, devpi: Index) -> None:
    table = f'schema = 1\n[index.torch]\ncpu = "{devpi.root}/devpi/cpu/+simple"\n'
    (terminal.cwd / "torchenv.toml").write_text(table, "utf-8")
    planned = terminal.type("plan", *CHOICE, "--json", TORCHENV_TORCH_INDEX="")
    assert planned.json["index"] == f"{devpi.root}/devpi/cpu/+simple"


def test_the_bare_address_is_refused_with_what_was_asked_and_what_a_root_looks_like(
    terminal: Terminal, devpi: Index
) -> None:
    ended = terminal.type("plan", *CHOICE, TORCHENV_TORCH_INDEX=f"{devpi.root}/devpi")
    code, said = ended.error
    assert code == 4
    assert f"{devpi.root}/devpi/cpu/torch/ does not exist" in said
    assert "no page for torch" in said
    assert "TORCHENV_TORCH_INDEX='https://mirror.example/{backend}/+simple'" in said
