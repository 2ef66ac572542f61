"""A sharded checkpoint of torch 2.15, and the way back to 2.14 that owners of older cards need."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.checkpoints import contents, save
from tests.support.terminal import Terminal
from tests.support.workshop import HOSTS
from tests.support.workspace import write_venv


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    terminal = Terminal.within(tmp_path)
    for torch in ("2.14.1+cu126", "2.15.0+cu132"):
        write_venv(tmp_path / torch, {"torch": torch})
        assert terminal.type("adopt", tmp_path / torch).code == 0
    assert terminal.type("use", "2").code == 0
    save(terminal.cwd / "runs" / "a" / "step-100", "dcp-2.14.1")
    save(terminal.cwd / "runs" / "a" / "step-200", "dcp-2.15.0")
    return terminal


def test_the_oldest_torch_that_reads_it_is_found_in_its_metadata(terminal: Terminal) -> None:
    found = terminal.type("checkpoints", "scan", "runs", "--json").json["checkpoints"]
    assert [(line["reader"]["torch_min"], line["reader"]["certainty"]) for line in found] == [
        ("2.4", "confirmed"),
        ("2.15", "confirmed"),
    ]


def test_a_plan_that_ends_on_2_14_names_what_it_could_not_read(terminal: Terminal) -> None:
    terminal.type("checkpoints", "scan", "runs")
    planned = terminal.type("plan", "2.15", "--host", HOSTS / "v100-driver-580.json", "--json").json
    assert planned["torch"] == "2.14.1"
    (warning,) = [line for line in planned["warnings"] if line["code"] == "checkpoints-out-of-reach"]
    assert warning["message"] == "runs/a: step-200 needs torch 2.15, and torch 2.14.1 cannot read it"


def test_who_is_asked_has_read_which_save_is_lost_and_nothing_is_switched_without_a_yes(
    terminal: Terminal,
) -> None:
    terminal.type("checkpoints", "scan", "runs")
    before = contents(terminal.cwd / "runs")
    ended = terminal.type("rollback", "1", "--ask")
    assert "step-200 cannot be read by environment 1" in ended.err
    assert "it needs torch 2.15" in ended.err
    assert "copy it with `torchenv checkpoints downgrade runs/a/step-200 --for 2.14`" in ended.err
    assert ended.err.endswith("nothing was switched\n")
    assert terminal.type("list", "--json").json["current"] == 2
    assert contents(terminal.cwd / "runs") == before
