"""Checkpoints as people and programs read them."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.checkpoints import LONG_AGO, save

from torchenv.actions.checkpoints import Scanned, examine
from torchenv.render.checkpoints import describe_show, encode_checkpoints
from torchenv.storage import place
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
        {"code": "in-progress", "message": "its files changed 40 s ago: the save may still be going on"},
    ]
    assert problems(SAVED + timedelta(hours=1)) == [unfinished]


def test_all_that_is_known_of_a_checkpoint_is_told(tmp_path: Path) -> None:
    save(tmp_path / "runs" / "a" / "step-200", "dcp-2.15.0")
    assert describe_show(scanned(tmp_path), SAVED).splitlines() == [
        "runs/a/step-200: dcp, complete, step 200, 1 tensor, 0.0 MB",
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
