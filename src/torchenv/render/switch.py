"""A move of the pointer, and the history of them, as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchenv.actions.switch import Switched
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Switch, as_json

if TYPE_CHECKING:
    from torchenv.actions.run_readability import RunReadability

SCHEMA = "torchenv.switch/1"


def encode_switch(switched: Switched, left: Sequence[RunReadability] = ()) -> dict[str, Any]:
    """Return the `torchenv.switch/1` document; `left` is what becomes of each training run."""
    return {
        "schema": SCHEMA,
        "from": switched.before.number if switched.before else None,
        "to": switched.now.number,
        "path": switched.now.path,
        "said": list(switched.said),
        "running": [{"pid": each.pid, "command": each.command} for each in switched.running],
        "checkpoints": [
            {
                "run": each.run,
                "newest_readable": each.newest_readable,
                "steps_behind": each.steps_behind,
                "unreadable": list(each.unreadable),
                "downgradable": list(each.downgradable),
            }
            for each in left
        ],
    }


def describe_switch(switched: Switched, *, program: str = "torchenv") -> str:
    """Describe what is in use now and what that means; commands to type begin with `program`."""
    return "\n".join(_lines(switched, program))


def encode_history(manifest: Manifest) -> dict[str, Any]:
    """Return the `torchenv.history/1` document."""
    return {"schema": "torchenv.history/1", "switches": [as_json(each) for each in manifest.switches]}


def describe_history(manifest: Manifest) -> str:
    """Describe every switch, the oldest first, with what the checks said."""
    names = {each.number: str(each) for each in manifest.environments}
    return "\n".join(line for switch in manifest.switches for line in _describe_switch(switch, names))


def _lines(switched: Switched, program: str) -> Iterator[str]:
    now, before = switched.now, switched.before
    if not switched.has_moved:
        yield f"environment {now} is in use already"
    else:
        yield f"environment {now} is in use" + (f", in place of {before}" if before else "")
    yield f"  {now.path}"
    yield from (f"  {each}" for each in switched.said)
    yield from (f"  {each} still runs from {before}, undisturbed" for each in switched.running)
    yield f'next: eval "$({program} activate)", or {program} run -- COMMAND'


def _describe_switch(switch: Switch, names: dict[int, str]) -> Iterator[str]:
    came = f"{names.get(switch.from_, str(switch.from_))} -> " if switch.from_ is not None else ""
    yield f"{switch.at:%Y-%m-%d %H:%M:%S}  {switch.why}: {came}{names.get(switch.to, str(switch.to))}"
    yield from (f"    {each}" for each in switch.said)
