"""What `kill -9` leaves running is ended by the next command; kills at any moment are in scripts/chaos."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.index import Index, serving
from tests.support.loopback import Torchenv
from tests.support.world import world

from torchenv.system.orphans import holders

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a killed process lets go of its files later there")


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with serving(world()) as served:
        yield served


@pytest.fixture(scope="module")
def torchenv(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Torchenv:
    """A workspace with 2.14 in use after 2.15: something to lose, and something to go back to."""
    torchenv = Torchenv(tmp_path_factory.mktemp("killing"), index)
    torchenv.succeed("create", "2.15", "--backend", "cpu", "--use")
    torchenv.succeed("create", "2.14", "--backend", "cpu", "--use")
    return torchenv


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who took a lock; others wait")
def test_what_a_killed_create_left_running_is_ended_before_its_directory_is_cleared(
    index: Index, torchenv: Torchenv
) -> None:
    process = torchenv.start("create", "2.15", "--backend", "rocm7.14")
    try:
        wait_for(lambda: bool(torchenv.store.read().list_unfinished()))
        (new,) = torchenv.store.read().list_unfinished()
        wait_for(torchenv.store.lock_path(new.number).is_file)
        index.seconds_before_wheels = 60
        wait_for(lambda: any("uv pip sync" in process for process in still_holding(torchenv.root)))
        process.kill()
        process.wait()
        assert still_holding(torchenv.root) != []
        torchenv.succeed("rollback")
    finally:
        index.seconds_before_wheels = 0
        process.kill()
        process.communicate()
    assert still_holding(torchenv.root) == []
    assert torchenv.sound().list_unfinished() == ()


def still_holding(root: Path) -> list[str]:
    """Return the programs that hold the number of an environment that is built."""
    found = []
    for pid in [pid for lock in (root / "building").glob("*.lock") for pid, _ in holders(lock)]:
        # It may end under the eye.
        with suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
    return found


def wait_for(happened: Callable[[], bool]) -> None:
    for _ in range(4000):
        if happened():
            return
        time.sleep(0.005)
    pytest.fail("it did not happen within its time")
