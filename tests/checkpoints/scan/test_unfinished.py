"""A save that is being written is called so: by the files that are open, else by the times of its files."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.checkpoints import LONG_AGO, save

from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.scan.runs import Save, runs_of
from torchenv.checkpoints.scan.unfinished import mark_being_written
from torchenv.storage import place
from torchenv.system.processes import Process

NOW = LONG_AGO + 10
SEEN: Mapping[str, Process] = {}


def look(root: Path, *, now: float = NOW, writers: Mapping[str, Process] | None = SEEN) -> dict[str, str]:
    """Return the saves that are not complete, each with its state and its reasons."""
    runs: dict[str, dict[str, Save]] = {}
    for grouped in runs_of(scan([place(root)], None, lambda _: None), str):
        runs[grouped.path] = {save.name: save for save in grouped.saves}
    mark_being_written(runs, int(now * 1e9), lambda: writers)
    parts = [
        (name, part.found) for saves in runs.values() for name, save in saves.items() for part in save.parts
    ]
    return {
        name: f"{found.state}: {'; '.join(message for _, message in found.problems)}"
        for name, found in parts
        if found.state != "complete"
    }


def test_a_save_of_which_a_file_is_open_for_writing_is_being_written(tmp_path: Path) -> None:
    step = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    save(tmp_path / "a" / "step-100", "dcp-2.15.0")
    writers = {f"{step}/__0_0.distcp": Process(4711, "python"), f"{step}/log.txt": Process(1, "tee")}
    assert look(tmp_path, writers=writers) == {
        "step-200": "writing: process 4711 (python) is writing __0_0.distcp"
    }
    # A log that stays open says nothing of the save.
    assert look(tmp_path, writers={f"{step}/log.txt": Process(1, "tee")}) == {}
    # What was finished long ago is not asked for.
    assert look(tmp_path, now=NOW + 4000, writers=writers) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which files are open")
def test_linux_itself_tells_who_writes(tmp_path: Path) -> None:
    step = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    os.utime(step / "__0_0.distcp")
    os.utime(step)
    with (step / "__0_0.distcp").open("ab"):
        ((run,),) = [scanned.saves for scanned in runs_of(scan([place(tmp_path)], None, print), str)]
        (part,) = run.parts
        ((code, message),) = part.found.problems
    assert (part.found.state, code) == ("writing", "writing")
    assert message.startswith(f"process {os.getpid()} (")
    assert message.endswith(" is writing __0_0.distcp")
    ((run,),) = [scanned.saves for scanned in runs_of(scan([place(tmp_path)], None, print), str)]
    assert run.complete


def test_a_file_that_is_unfinished_by_its_name_is_being_written_for_a_minute(tmp_path: Path) -> None:
    save(tmp_path / "a" / "step-100", "dcp-2.15.0")
    for name in ("model.pt.tmp", "tokens.pt"):
        (tmp_path / "a" / name).write_bytes(b"half")
        os.utime(tmp_path / "a" / name, (LONG_AGO, LONG_AGO))
    found = look(tmp_path)
    assert found["model.pt.tmp"] == (
        "writing: by its name it is not finished: model.pt.tmp;"
        " its files changed 10 s ago: it may still be being written"
    )
    assert found["tokens.pt"].startswith("corrupt: ")
    assert look(tmp_path, now=LONG_AGO + 61)["model.pt.tmp"].startswith("incomplete: ")


def test_where_nobody_sees_who_writes_what_is_not_whole_is_being_written_for_a_minute(tmp_path: Path) -> None:
    save(tmp_path / "a" / "step-100", "dcp-2.15.0")
    step = save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    (step / ".metadata").unlink()
    os.utime(step, (LONG_AGO, LONG_AGO))
    assert look(tmp_path)["step-200"].startswith("incomplete: ")
    assert look(tmp_path, writers=None)["step-200"].startswith("writing: ")
    assert look(tmp_path, writers=None, now=LONG_AGO + 61)["step-200"].startswith("incomplete: ")
