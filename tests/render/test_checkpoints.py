"""Checkpoints as people and programs read them."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.checkpoints import LONG_AGO, save

from torchenv.actions.checkpoints import Scanned, examine, list_contents
from torchenv.render.checkpoints import describe_scan, describe_show, encode_checkpoints
from torchenv.render.environment import RUNS_SHOWN
from torchenv.storage import place
from torchenv.storage.carry import describe_size
from torchenv.workspace.records import Run
from torchenv.workspace.store import Store

SAVED = datetime.fromtimestamp(LONG_AGO, UTC)


def scanned(root: Path) -> Scanned:
    store = Store(root / ".torchenv")
    return examine([place(root / "runs")], store, system="linux", say=lambda _: None)


def test_a_save_whose_files_changed_a_moment_ago_may_still_be_going_on(tmp_path: Path) -> None:
    # Case 37: in progress, and not yet to be given up.
    save(tmp_path / "runs" / "a" / "step-100", "dcp-nometa")
    seen = scanned(tmp_path)

    def problems(now: datetime) -> list[dict[str, str]]:
        (found,) = encode_checkpoints(seen, now)["checkpoints"]
        return list(found["problems"])

    unfinished = {"code": "no-metadata", "message": "no .metadata: the save did not finish"}
    assert problems(SAVED + timedelta(seconds=40)) == [
        unfinished,
        {"code": "in-progress", "message": "its files changed 40 s ago: the save may still be running"},
    ]
    assert problems(SAVED + timedelta(hours=1)) == [unfinished]


def test_a_scan_is_one_line_a_run_and_the_totals_say_what_is_not_shown(tmp_path: Path) -> None:
    for number in range(RUNS_SHOWN + 2):
        save(tmp_path / "runs" / f"r{number:02}" / "step-1", "dcp-2.14.1")
    save(tmp_path / "runs" / "r00" / "step-2", "dcp-nometa")
    seen = scanned(tmp_path)
    lines = [Run(path=run.path, newest="step-1") for run in seen.runs]
    text = describe_scan(seen, lines, SAVED).splitlines()
    assert text[0] == "13 saves in 12 runs: 12 complete"
    assert len(text) == 1 + RUNS_SHOWN + 2
    assert text[-2:] == ["2 more runs not shown (see --all)", "1 save not complete (see --all)"]
    whole = describe_scan(seen, lines, SAVED, show_all=True)
    assert whole.count("newest step-1") == RUNS_SHOWN + 2
    assert "step-2: incomplete: " in whole


def test_all_that_is_known_of_a_checkpoint_is_told(tmp_path: Path) -> None:
    save(tmp_path / "runs" / "a" / "step-200", "dcp-2.15.0")
    assert describe_show(scanned(tmp_path), SAVED).splitlines() == [
        "runs/a/step-200: dcp, complete, step 200, 1 tensor, 3.7 KiB",
        "  read by torch 2.15 and newer (confirmed)",
        "    its metadata names classes that torch 2.3 moved",
        "    its metadata names StorageMeta, which torch 2.4 added",
        (
            "    its metadata records strides, which torch 2.14 and older cannot unpack:"
            " `torchenv checkpoints downgrade` makes a copy without them"
        ),
    ]


def test_a_name_that_would_act_on_a_terminal_is_written_out(tmp_path: Path) -> None:
    directory = tmp_path / "runs" / "a" / "step-1\x1b[2J"
    directory.mkdir(parents=True)
    (directory / ".metadata").write_bytes(b"")
    os.utime(directory / ".metadata", (LONG_AGO, LONG_AGO))
    text = describe_show(scanned(tmp_path), SAVED + timedelta(days=1))
    assert "\x1b" not in text
    assert text.startswith(r"'runs/a/step-1\x1b[2J': dcp, corrupt, step 1")


def test_show_prints_a_screen_with_the_newest_first_and_says_how_many_more(tmp_path: Path) -> None:
    for step in range(20):
        save(tmp_path / "runs" / "a" / f"step-{step}", "dcp-2.15.0")
    lines = describe_show(scanned(tmp_path), SAVED).splitlines()
    assert lines[0].startswith("runs/a/step-19: ")
    assert len(lines) <= 41
    assert lines[-1] == f"and {20 - (len(lines) - 1) // 5} more checkpoints: name one, or --json has all"


def test_show_lists_every_tensor_where_it_is_asked_to(tmp_path: Path) -> None:
    for step in range(20):
        save(tmp_path / "runs" / "a" / f"step-{step}", "dcp-2.15.0")
    (tmp_path / "runs" / "a" / "step-3" / ".metadata").write_bytes(b"")
    seen = scanned(tmp_path)
    contents = list_contents(seen, Store(tmp_path / ".torchenv"))
    text = describe_show(seen, SAVED, contents=contents)
    assert text.count("runs/a/step-") == 20 + text.count("its tensors cannot be listed")
    assert text.count("float32 [") == 19
    entries = encode_checkpoints(seen, SAVED, contents=contents)["checkpoints"]
    held = {Path(entry["path"]).name: entry["contents"] for entry in entries}
    assert held["step-3"] is None
    assert [form["dtype"] for form in held["step-4"]["tensors"].values()] == ["float32"]


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 bytes"), (100, "100 bytes"), (3788, "3.7 KiB"), (5 << 20, "5.0 MiB"), (3 << 29, "1.5 GiB")],
)
def test_a_size_is_told_by_a_unit_that_leaves_something_to_read(size: int, shown: str) -> None:
    assert describe_size(size) == shown
