"""Many processes at once in one workspace: they take turns, and lose nothing."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

from tests.support.index import serving
from tests.support.loopback import Torchenv
from tests.support.world import world

# Some seconds in the ordinary tests; `scripts/soak` asks for a whole minute.
SECONDS = float(os.environ.get("TORCHENV_CROWD_SECONDS", "6"))
PROCESSES = 8


def test_eight_processes_that_create_use_and_roll_back_at_once_leave_every_environment_recorded(
    tmp_path: Path,
) -> None:
    with serving(world()) as index:
        torchenv = Torchenv(tmp_path, index)
        torchenv.succeed("create", "2.14", "--backend", "cpu", "--use")
        torchenv.succeed("create", "2.15", "--backend", "cpu", "--use")
        until = time.monotonic() + SECONDS
        codes: Counter[tuple[str, int]] = Counter()
        crowd = [
            threading.Thread(target=_busy, args=(torchenv, until, random.Random(seed), codes))
            for seed in range(PROCESSES)
        ]
        for each in crowd:
            each.start()
        for each in crowd:
            each.join()

        manifest = torchenv.sound()
        assert {code for _, code in codes} == {0}
        assert manifest.list_unfinished() == ()
        # Of several that would build the same at once, one does.
        assert 0 < len(manifest.environments) - 2 <= codes["create", 0]
        # Each switch begins where the one before it ended: none was lost, and none was made up.
        ends = [switch.to for switch in manifest.switches]
        assert [switch.from_ for switch in manifest.switches] == [None, *ends[:-1]]
        assert manifest.current == ends[-1]
        assert torchenv.torch_in_use() == manifest.number(ends[-1]).torch


def _busy(torchenv: Torchenv, until: float, chance: random.Random, codes: Counter[tuple[str, int]]) -> None:
    choices = (
        ("create", "2.15", "--backend", "cu132"),
        ("create", "2.14", "--backend", "cu126"),
        ("use", "1"),
        ("use", "2"),
        ("rollback",),
        ("rollback",),
    )
    while time.monotonic() < until:
        words = chance.choice(choices)
        codes[words[0], torchenv(*words).code] += 1
