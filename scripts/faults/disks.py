"""Disks without room: by bytes and by inodes, on file systems that are mounted for it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from scripts.faults.kills import COMMANDS
from scripts.faults.scene import Scene, refuse_changes
from scripts.faults.tally import Tally, require
from tests.support.index import serving
from tests.support.world import world

_BYTES, _INODES = 24 << 20, 3000

# What the way back needs on a disk with nothing free, in the order in which a person would try it.
_WAY_BACK = (
    ("rollback",),
    ("use", "2", "--force"),
    ("remove", "3", "--force", "--offline"),
    ("prune", "--offline"),
)


def run_disks(directory: Path, tries: int, seed: int) -> Tally:
    """Take room away down to a random rest, run a command; then take all, go back and free some."""
    chance, tally = random.Random(seed), Tally("disks", seed)
    if os.geteuid() != 0 or not _can_mount(directory):
        tally.notes.append("skipped: only root may mount a small disk")
        return tally
    names = [name for name in COMMANDS if name != "adopt"]
    with ExitStack() as stack, serving(world()) as index:
        kinds = {}
        for kind in ("tmpfs", "ext4"):
            with suppress(subprocess.CalledProcessError):
                kinds[kind] = stack.enter_context(_mounted(directory / kind, kind))
        scenes = {kind: _make(directory, place, index) for kind, place in kinds.items()}
        tally.notes.append(f"file systems: {', '.join(scenes)}")
        for n in range(tries):
            kind = list(scenes)[n % len(scenes)]
            what = "inodes" if (n // 2) % 2 else "bytes"
            rest = chance.choice((0, 0, 1, 2, 5, 10, 20, 40, 80, 160))
            name = chance.choice(names)
            shown = (
                f"try {n} of seed {seed}: {name} on {kind} with {rest} {what.replace('bytes', 'KiB')} free"
            )
            with tally.trying(what, shown):
                _try(scenes[kind], kinds[kind], what, rest, name)
    return tally


def _try(scene: Scene, disk: Path, what: str, rest: int, name: str) -> None:
    _restore(scene, disk)
    words = COMMANDS[name](scene)
    if words is None:
        return
    around, environments = scene.digest(), scene.digest_environments()
    _fill(disk, what, rest)
    scene.run(*words).refuse_defect()
    require(scene.read().active is not None, "no environment is active any more")
    for number, digest in scene.digest_environments().items():
        require(
            environments.get(number, digest) == digest or name in {"add", "drop"}, f"{number} has changed"
        )
    for step in _WAY_BACK:
        _fill(disk, what, 0)
        if not _is_possible(step, scene):
            continue
        ended = scene.run(*step)
        ended.refuse_defect()
        require(ended.code == 0, f"`torchenv {' '.join(step)}` on a disk without {what}: {ended.err[-800:]}")
    _free(disk)
    refuse_changes(around, scene.digest())
    scene.make_way_back()
    scene.succeed("rollback")
    scene.prove_sound()
    scene.prove_clear()


def _is_possible(step: tuple[str, ...], scene: Scene) -> bool:
    manifest = scene.read()
    if step[0] == "rollback":
        return manifest.rollback_target(lambda environment: environment.on_disk) is not None
    named = [environment for environment in manifest.environments if str(environment.number) in step]
    is_there = any(environment.on_disk for environment in named)
    return step[0] == "prune" or (is_there and (step[0] == "use" or named[0].number != manifest.current))


def _make(directory: Path, disk: Path, index: object) -> Scene:
    # The whole project lies on it, as it does on a laptop that is full.
    (disk / "scene").mkdir()
    scene = Scene(disk / "scene", index)  # type: ignore[arg-type]
    scene.make()
    subprocess.run(["cp", "-a", str(scene.directory), str(directory / f"whole-{disk.name}")], check=True)
    return scene


def _restore(scene: Scene, disk: Path) -> None:
    _free(disk)
    whole = disk.parent / f"whole-{disk.name}"
    for path in scene.directory.iterdir():
        shutil.rmtree(path)
    subprocess.run(["cp", "-a", f"{whole}/.", str(scene.directory)], check=True)


def _fill(disk: Path, what: str, rest: int) -> None:
    """Take the room that is left down to `rest` KiB, or that many inodes."""
    place = disk / "filler"
    place.mkdir(exist_ok=True)
    if what == "bytes":
        with (place / f"{len(list(place.iterdir()))}").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - (rest << 10)
                if free <= 0:
                    break
                file.write(bytes(min(free, 1 << 20)))
        return
    with suppress(OSError):
        n = len(list(place.iterdir()))
        while os.statvfs(disk).f_favail > rest:
            (place / f"inode-{n}").touch()
            n += 1


def _free(disk: Path) -> None:
    shutil.rmtree(disk / "filler", ignore_errors=True)


def _can_mount(directory: Path) -> bool:
    try:
        with _mounted(directory / "try", "tmpfs"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def _mounted(place: Path, kind: str) -> Iterator[Path]:
    place.mkdir()
    if kind == "tmpfs":
        words = ["mount", "-t", "tmpfs", "-o", f"size={_BYTES},nr_inodes={_INODES}", "tmpfs", str(place)]
    else:
        image = place.with_suffix(".image")
        with image.open("wb") as file:
            file.truncate(_BYTES)
        options = ["-q", "-N", str(_INODES), "-m", "0", "-O", "^has_journal"]
        subprocess.run(["mkfs.ext4", *options, str(image)], check=True, capture_output=True)
        words = ["mount", "-o", "loop", str(image), str(place)]
    subprocess.run(words, check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)
