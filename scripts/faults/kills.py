"""Commands that a signal stops at any moment."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from scripts.faults.scene import Ended, Scene, finish, is_draft, refuse_changes
from scripts.faults.tally import Tally, require
from tests.support.index import serving
from tests.support.workspace import write_venv
from tests.support.world import world

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# Seconds in which a signal that can be heard ends a command.
PROMPT = 2.0

# Python itself hears no handler of torchenv's before it has read its first module.
_OF_PYTHON = "KeyboardInterrupt"


def run_kills(directory: Path, tries: int, seed: int) -> Tally:
    """Stop each of 15 commands by each of 4 signals at random moments, over and over."""
    chance, tally = random.Random(seed), Tally("kills", seed)
    longest = 0.0
    with serving(world()) as index:
        scene = Scene(directory, index).make()
        took = {name: _measure(scene, name) for name in COMMANDS}
        for n in range(tries):
            if n % (len(COMMANDS) * len(SIGNALS)) == 0:
                order = [(name, number) for name in COMMANDS for number in SIGNALS]
                chance.shuffle(order)
            name, number = order[n % len(order)]
            moment = chance.uniform(0, took[name] * 1.1)
            # A tenth of them in the first tenth of a second.
            moment = chance.uniform(0, 0.1) if chance.random() < 0.1 else moment
            what = f"try {n} of seed {seed}: {signal.Signals(number).name} {moment:.3f} s into {name}"
            with tally.trying(name, what):
                longest = max(longest, _stop(scene, name, number, moment, tally))
    tally.notes.append(f"a signal that can be heard ended its command within {longest:.1f} s")
    tally.notes.append(f"{tally.unheard} came while Python itself was starting")
    return tally


def _stop(scene: Scene, name: str, number: signal.Signals, moment: float, tally: Tally) -> float:
    words = COMMANDS[name](scene)
    scene.make_way_back()
    if words is None:
        return 0.0
    around, before, digests = scene.digest(), scene.prove_sound(), scene.digest_environments()
    began = time.monotonic()
    process = scene.start(*words)
    time.sleep(moment)
    sent = time.monotonic()
    process.send_signal(number)
    ended = (
        _end_of_killed(process, words, began) if number == signal.SIGKILL else finish(process, words, began)
    )
    waited = time.monotonic() - sent
    if number == signal.SIGKILL:
        require(ended.code in {-number, 0, 1, 2, 3, 4, 5}, f"ended with {ended.code}")
        waited = 0.0
    elif ended.code == -number or _is_before_torchenv(ended):
        tally.unheard += 1
    else:
        ended.refuse_defect()
        require(ended.code != 130 or waited <= PROMPT, f"took {waited:.1f} s to end")
        waited = waited if ended.code == 130 else 0.0

    after = scene.read()
    require(after.active is not None, "no environment is active any more")
    kept = {
        environment.number: digests[environment.number]
        for environment in after.environments
        if environment.on_disk
        and environment.number in digests
        and _is_kept(name, environment.number, before.current)
    }
    # What was renamed away and is not yet recorded as removed, the next command puts back.
    away = {path.name for path in (scene.root / "trash").glob("*")}
    for environment in after.environments:
        if environment.number in kept and Path(environment.path).name not in away:
            refuse_changes(kept[environment.number], scene.digest_environments()[environment.number])
    refuse_changes(around, scene.digest())
    # The next command works, and leaves nothing of the one before.
    scene.succeed("rollback")
    scene.prove_sound()
    for changed, files in kept.items():
        refuse_changes(files, scene.digest_environments()[changed])
    scene.prove_clear()
    if any(is_draft(path.name) for path in scene.project.iterdir()):
        scene.succeed("lock", "--upgrade")
        require(not any(is_draft(path.name) for path in scene.project.iterdir()), "a draft of a file is left")
    if sum(environment.on_disk for environment in scene.read().environments) > 6:
        scene.succeed("prune", "--keep", "1", "--offline")
    return waited


def _is_kept(name: str, number: int, current: int | None) -> bool:
    # A change in place goes through a copy, and is what was asked for.
    return name not in {"add", "drop"} or number != current


def _is_before_torchenv(ended: Ended) -> bool:
    """Whether Python itself was still starting: nothing of torchenv's is in the traceback."""
    return _OF_PYTHON in ended.err and "torchenv" not in ended.err.replace("-m torchenv", "")


def _end_of_killed(process: object, words: tuple[str, ...], began: float) -> Ended:
    # Its children hold the pipes that nobody reads any more.
    process.wait()  # type: ignore[attr-defined]
    for pipe in (process.stdout, process.stderr):  # type: ignore[attr-defined]
        pipe.close()
    return Ended(words, process.returncode, "", "", time.monotonic() - began)  # type: ignore[attr-defined]


def _measure(scene: Scene, name: str) -> float:
    words = COMMANDS[name](scene)
    return 1.0 if words is None else min(5.0, scene.run(*words).seconds)


Words = tuple[str, ...] | None


def _find_last(scene: Scene) -> Words:
    others = [one for one in scene.read().environments if one.on_disk and one.number != scene.read().current]
    return ("remove", str(others[-1].number), "--force", "--offline") if len(others) > 2 else None


def _find_removed(scene: Scene) -> Words:
    removed = [one for one in scene.read().environments if not one.on_disk and one.lock]
    return ("restore", str(removed[-1].number)) if removed else None


def _find_other(scene: Scene) -> Words:
    others = [one for one in scene.read().environments if one.live and one.number != scene.read().current]
    return ("use", str(others[-1].number), "--force")


def _adopt_another(scene: Scene) -> Words:
    place = scene.directory / "others" / str(time.monotonic_ns())
    write_venv(place, {"torch": "2.14.1+cpu"})
    return ("adopt", str(place))


def _lock_anew(scene: Scene) -> Words:
    for path in (*scene.project.glob("pylock.*.toml"), scene.project / "torchenv.lock.toml"):
        path.unlink(missing_ok=True)
    return ("lock",)


def _sync_anew(scene: Scene) -> Words:
    if not (scene.project / "torchenv.lock.toml").exists():
        scene.succeed("lock")
    digest = f"sha256:{hashlib.sha256((scene.project / 'pylock.ci.toml').read_bytes()).hexdigest()}"
    for environment in scene.read().environments:
        if environment.on_disk and environment.lock == digest:
            # What is there is not built again.
            scene.make_way_back()
            if environment.number == scene.read().current:
                scene.succeed("rollback")
            scene.succeed("remove", str(environment.number), "--force", "--offline")
    scene.make_way_back()
    return ("sync", "ci")


def _keep_another(scene: Scene) -> Words:
    scene.add_saves()
    return ("checkpoints", "keep", "--copy", f"{scene.newest_run}/step-100")


def _downgrade_another(scene: Scene) -> Words:
    shutil.rmtree(scene.project / f"{scene.newest_run}-for-2.14", ignore_errors=True)
    return ("checkpoints", "downgrade", f"{scene.newest_run}/step-200", "--for", "2.14")


def _fixed(*words: str) -> Callable[[Scene], Words]:
    return lambda _: words


COMMANDS: dict[str, Callable[[Scene], Words]] = {
    "create": _fixed("create", "2.15", "--backend", "cu132"),
    "create --use": _fixed("create", "2.14", "--backend", "cu126", "--use"),
    "use": _find_other,
    "rollback": _fixed("rollback"),
    "remove": _find_last,
    "prune": _fixed("prune", "--keep", "2", "--offline"),
    "restore": _find_removed,
    "add": _fixed("add", "lightning"),
    "drop": _fixed("drop", "lightning"),
    "adopt": _adopt_another,
    "checkpoints scan": _fixed("checkpoints", "scan"),
    "checkpoints keep": _keep_another,
    "checkpoints downgrade": _downgrade_another,
    "lock": _lock_anew,
    "sync": _sync_anew,
}

assert os.name == "posix"
