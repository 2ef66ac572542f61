"""What stays readable in which environment: what the record says of training runs and of kept checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from torchenv.manifest import Manifest
from torchenv.record import Environment, Run
from torchenv.steps import behind

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifeboat:
    """The newest kept checkpoint that an environment reads, and when it was written."""

    path: str
    saved: datetime | None = None

    def age(self, now: datetime) -> timedelta | None:
        """How old it is, where that is known."""
        return None if self.saved is None else now - self.saved


def newest_lifeboat(manifest: Manifest, number: int) -> Lifeboat | None:
    """Give the newest kept checkpoint that an environment reads."""
    boats = [
        Lifeboat(path=each.path, saved=each.saved) for each in manifest.kept if number in each.readable_by
    ]
    return max(boats, key=lambda each: each.saved.timestamp() if each.saved else 0.0, default=None)


def advice(manifest: Manifest, most: timedelta | None, now: datetime) -> str | None:
    """Say what to keep before the environment in use becomes the one to fall back to; None: nothing.

    `most` is how old the newest lifeboat may be.
    """
    current = manifest.in_use
    if current is None:
        return "no checkpoint is kept to fall back on: keep one with `torchenv checkpoints keep`"
    boat = newest_lifeboat(manifest, current.number)
    if boat is None:
        said = f"no kept checkpoint is readable by environment {current}"
        return f"{said}: keep one with `torchenv checkpoints keep` before new ones are written"
    age = boat.age(now)
    if most is None or age is None or age <= most:
        return None
    said = f"the newest kept checkpoint that environment {current} reads, {boat.path}, is {_spoken(age)} old"
    return f"{said}: the profile asks for one of at most {_spoken(most)}"


def told(run: Run, environment: Environment) -> Iterator[str]:
    """Tell what an environment reads of a run, as the last scan saw it; nothing where it reads the newest."""
    number, newest = environment.number, run.newest
    readable = run.newest_readable.get(number)
    back = behind(newest, readable)
    # A copy of the newest that can be read is as good.
    if newest is not None and readable != newest and back != 0:
        needs = f" (it needs torch {run.needs})" if run.needs else ""
        found = f"{readable} is the newest that can" if readable else "none of the run can"
        steps = f", {back} steps behind" if back else ""
        yield f"{run.path}: {newest} cannot be read by environment {environment}{needs}; {found}{steps}"
        if number in run.downgrades_for and environment.torch:
            line = ".".join(environment.torch.split(".")[:2])
            yield f"  `torchenv checkpoints downgrade {run.path}/{newest} --for {line}` makes a copy that can"
    if run.broken:
        yield f"{run.path}: not complete and newer: {', '.join(run.broken)}"


def _spoken(time: timedelta) -> str:
    return f"{time.days} days" if time >= timedelta(days=2) else f"{time // _HOUR} hours"
