"""A move of the pointer, and the history of them, as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchenv.actions.switch import Switched
from torchenv.workspace.keys import as_json
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Switch

if TYPE_CHECKING:
    from torchenv.actions.run_readability import RunReadability

SCHEMA = "torchenv.switch/1"


def encode_switch(switched: Switched, runs: Sequence[RunReadability] = ()) -> dict[str, Any]:
    """Return the `torchenv.switch/1` document; `runs` are those of training as the environment reads them."""
    return {
        "schema": SCHEMA,
        "from": switched.before.number if switched.before else None,
        "to": switched.now.number,
        "path": switched.now.path,
        "said": list(switched.said),
        "running": [{"pid": process.pid, "command": process.command} for process in switched.running],
        "checkpoints": [
            {
                "run": run.run,
                "newest_readable": run.newest_readable,
                "steps_behind": run.steps_behind,
                "unreadable": list(run.unreadable),
                "downgradable": list(run.downgradable),
            }
            for run in runs
        ],
    }


def describe_switch(switched: Switched, *, program: str = "torchenv") -> str:
    """Describe which environment is active now and what that means; commands to type begin with `program`."""
    return "\n".join(_lines(switched, program))


def encode_history(manifest: Manifest) -> dict[str, Any]:
    """Return the `torchenv.history/1` document."""
    return {"schema": "torchenv.history/1", "switches": [as_json(switch) for switch in manifest.switches]}


def describe_history(manifest: Manifest) -> str:
    """Describe every switch, the oldest first, with what the checks said."""
    names = {environment.number: str(environment) for environment in manifest.environments}
    return "\n".join(line for switch in manifest.switches for line in _describe_switch(switch, names))


def _lines(switched: Switched, program: str) -> Iterator[str]:
    now, before = switched.now, switched.before
    if not switched.has_moved:
        yield f"environment {now} is already active"
    else:
        yield f"environment {now} is now active" + (f" (before: {before})" if before else "")
    yield f"  {now.path}"
    yield from (f"  {line}" for line in switched.said)
    yield from (f"  {before} is still used by {process}" for process in switched.running)
    yield f'next: eval "$({program} activate)", or {program} run -- COMMAND'


def _describe_switch(switch: Switch, names: dict[int, str]) -> Iterator[str]:
    came = f"{names.get(switch.from_, str(switch.from_))} -> " if switch.from_ is not None else ""
    yield f"{switch.at:%Y-%m-%d %H:%M:%S}  {switch.why}: {came}{names.get(switch.to, str(switch.to))}"
    yield from (f"    {line}" for line in switch.said)
