"""A move of the pointer, and the history of them, as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchenv.actions.switch import Switched
from torchenv.manifest import Manifest
from torchenv.record import Run, Switch, as_json

SCHEMA = "torchenv.switch/1"

# A person reads this many runs; the document holds all.
SHOWN = 10


def switch_document(switched: Switched) -> dict[str, Any]:
    """Give the `torchenv.switch/1` document."""
    return {
        "schema": SCHEMA,
        "from": switched.before.number if switched.before else None,
        "to": switched.now.number,
        "path": switched.now.path,
        "said": list(switched.said),
        "running": [{"pid": each.pid, "command": each.command} for each in switched.running],
        "checkpoints": [
            {"run": run.path, "newest_readable": run.newest_readable.get(switched.now.number)}
            for run in switched.runs
        ],
    }


def switch_text(switched: Switched) -> str:
    """Tell what is in use now and what that means."""
    return "\n".join(_lines(switched))


def history_document(manifest: Manifest) -> dict[str, Any]:
    """Give the `torchenv.history/1` document."""
    return {"schema": "torchenv.history/1", "switches": [as_json(each) for each in manifest.switches]}


def history_text(manifest: Manifest) -> str:
    """Tell every switch, the oldest first, with what the checks said."""
    names = {each.number: str(each) for each in manifest.environments}
    return "\n".join(line for switch in manifest.switches for line in _told(switch, names))


def _lines(switched: Switched) -> Iterator[str]:
    now, before = switched.now, switched.before
    if not switched.moved:
        yield f"environment {now} is in use already"
    else:
        yield f"environment {now} is in use" + (f", in place of {before}" if before else "")
    yield f"  {now.path}"
    yield from (f"  {each}" for each in switched.said)
    yield from (f"  {each} still runs from {before}, undisturbed" for each in switched.running)
    behind = [line for run in switched.runs for line in _of_run(run, now.number)]
    yield from behind[:SHOWN]
    if len(behind) > SHOWN:
        yield f"  and so with {len(behind) - SHOWN} more runs"
    yield 'next: eval "$(torchenv activate)", or torchenv run -- COMMAND'


def _of_run(run: Run, number: int) -> Iterator[str]:
    readable = run.newest_readable.get(number)
    if readable is None:
        yield f"  {run.path}: no checkpoint is known to be readable here"
    elif readable != run.newest:
        yield f"  {run.path}: {run.newest} cannot be read here, {readable} is the newest that can"


def _told(switch: Switch, names: dict[int, str]) -> Iterator[str]:
    came = f"{names.get(switch.from_, str(switch.from_))} -> " if switch.from_ is not None else ""
    yield f"{switch.at:%Y-%m-%d %H:%M:%S}  {switch.why}: {came}{names.get(switch.to, str(switch.to))}"
    yield from (f"    {each}" for each in switch.said)
