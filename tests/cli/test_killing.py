"""`kill -9` at any moment of any command: the next one works, on the environment before or after."""

from __future__ import annotations

import os
import random
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

# Ten moments in the ordinary tests; `scripts/soak` asks for more.
MOMENTS = int(os.environ.get("TORCHENV_KILLS", "10"))
SEED = int(os.environ.get("TORCHENV_SEED", "2152"))


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


# Each command that changes something, with how long it takes here, in parts of a `create`.
COMMANDS: tuple[tuple[float, tuple[str, ...]], ...] = (
    (1.0, ("create", "2.15", "--backend", "cu132")),
    (1.2, ("create", "2.15", "--backend", "cu134", "--use")),
    (0.15, ("use", "1")),
    (0.15, ("rollback",)),
    (0.4, ("remove", "{last}", "--offline")),
    (0.4, ("prune", "--keep", "1", "--offline")),
    (0.6, ("restore", "{removed}")),
)


def test_a_command_killed_at_any_moment_leaves_the_environment_in_use_before_or_after(
    torchenv: Torchenv,
) -> None:
    chance = random.Random(SEED)
    whole = duration_of(lambda: torchenv.succeed("create", "2.14", "--backend", "cu126"))
    torchenv.succeed("remove", str(torchenv.sound().environments[-1].number), "--offline")
    stopped = 0
    while stopped < MOMENTS:
        share, words = chance.choice(COMMANDS)
        before = torchenv.sound()
        assert before.active is not None
        built = [each for each in before.environments if each.on_disk]
        removed = [each for each in before.environments if not each.on_disk]
        names = {"{last}": built[-1].number, "{removed}": removed[-1].number if removed else 0}
        given = tuple(str(names.get(word, word)) for word in words)
        stopped += torchenv.kill_within(whole * share, *given, chance=chance)

        after = torchenv.store.read()
        assert after.active is not None, f"seed {SEED}: nothing is in use after {given}"
        assert torchenv.torch_in_use() == after.active.torch

        # The next command works, and leaves nothing of the one before.
        torchenv.succeed("rollback")
        again = torchenv.sound()
        assert again.list_unfinished() == ()
        assert again.current != after.current
        assert str(torchenv.store.current.resolve()) == again.number(again.current or 0).path
        assert not list((torchenv.root / "trash").glob("*"))
        assert still_holding(torchenv.root) == []
        if len(built) > 5:
            torchenv.succeed("prune", "--keep", "1", "--offline")


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
        wait_for(lambda: any("uv pip sync" in each for each in still_holding(torchenv.root)))
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


def duration_of(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def wait_for(happened: Callable[[], bool]) -> None:
    for _ in range(4000):
        if happened():
            return
        time.sleep(0.005)
    pytest.fail("it did not happen within its time")
