"""What may befall a workspace, a few times each; `scripts/chaos --long` does it thousands of times."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts.faults.crowd import run_crowd
from scripts.faults.disks import run_disks
from scripts.faults.indexes import run_indexes
from scripts.faults.kills import run_kills
from scripts.faults.manifests import run_manifests
from scripts.faults.places import run_places
from scripts.faults.repositories import run_repositories
from scripts.faults.tally import Broken, Tally, require
from tests.support.rights import may_be_denied

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)

SEED = 2152


@pytest.mark.parametrize(
    ("run", "tries"),
    [
        (run_kills, 8),
        (run_disks, 4),
        (run_places, 14),
        (run_manifests, 150),
        (run_indexes, 5),
        (run_repositories, 4),
        (run_crowd, 5),
    ],
    ids=["kills", "disks", "places", "manifests", "indexes", "repositories", "crowd"],
)
def test_nothing_is_lost_nothing_is_run_and_the_next_command_works(
    tmp_path: Path, run: Callable[[Path, int, int], Tally], tries: int
) -> None:
    if run is run_places and not may_be_denied():
        pytest.skip("root is denied nothing here")
    if run is run_repositories and shutil.which("git") is None:
        pytest.skip("there is no git")
    tally = run(tmp_path, tries, SEED)
    if run is run_disks and not tally.count:
        assert os.geteuid() != 0 or tally.notes == ["skipped: only root may mount a small disk"]
        pytest.skip("only root may mount a small disk")
    assert tally.failures == []
    assert tally.count >= min(tries, 5)


def test_what_does_not_hold_is_written_down_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally("kills", SEED)
    for holds in (True, False):
        with tally.trying("use", f"a try that {'holds' if holds else 'does not'}"):
            require(holds, "the record is gone")
    assert (tally.count, tally.failures) == (2, ["a try that does not: the record is gone"])
    assert Tally.from_json(tally.to_json()) == tally
    with pytest.raises(Broken, match="gone"):
        require(holds=False, what="gone")
