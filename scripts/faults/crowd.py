"""Eight processes at once in one workspace."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from scripts.faults.scene import Scene, refuse_changes
from scripts.faults.tally import Tally, require
from tests.support.index import serving
from tests.support.world import world

PROCESSES = 8

_CHOICES = (
    ("create", "2.15", "--backend", "cu132"),
    ("create", "2.14", "--backend", "cu126"),
    ("use", "1", "--force"),
    ("use", "2", "--force"),
    ("rollback",),
    ("rollback",),
    ("list", "--json"),
    ("checkpoints", "scan"),
    ("verify", "3"),
)


def run_crowd(directory: Path, seconds: int, seed: int) -> Tally:
    """Let them create, switch, look and scan for a while; each command must end well."""
    tally = Tally("crowd of eight", seed)
    with serving(world()) as index:
        scene = Scene(directory, index).make()
        around = scene.digest()
        until = time.monotonic() + seconds
        busy = [
            threading.Thread(target=_work, args=(scene, until, random.Random(seed + n), tally))
            for n in range(PROCESSES)
        ]
        for thread in busy:
            thread.start()
        for thread in busy:
            thread.join()
        with tally.trying("the record afterwards", "after the crowd"):
            manifest = scene.prove_sound()
            require(not manifest.list_unfinished(), "an environment is left unfinished")
            # Each switch begins where the one before it ended: none was lost, and none was made up.
            ends = [switch.to for switch in manifest.switches]
            begins = [switch.from_ for switch in manifest.switches]
            require(begins[1:] == ends[:-1], "a switch was lost")
            require(manifest.current == ends[-1], "the last switch is not the active environment")
            refuse_changes(around, scene.digest())
            scene.succeed("rollback")
            scene.prove_clear()
    return tally


def _work(scene: Scene, until: float, chance: random.Random, tally: Tally) -> None:
    while time.monotonic() < until:
        words = chance.choice(_CHOICES)
        with tally.trying(words[0], f"`torchenv {' '.join(words)}`"):
            ended = scene.run(*words)
            ended.refuse_defect()
            # A verify tells what it found, and a byte-code cache may come at that moment.
            require(ended.code == 0 or words[0] == "verify", f"ended with {ended.code}: {ended.err[-600:]}")
