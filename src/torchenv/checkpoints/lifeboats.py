"""What stays readable in which environment: what the record says of training runs and of kept checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from posixpath import normpath
from typing import TYPE_CHECKING

from torchenv.checkpoints.steps import behind, is_copy
from torchenv.system.values import frozen
from torchenv.system.words import count, describe_age
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, Kept, Run

if TYPE_CHECKING:
    from packaging.version import Version


def find_newest_kept(manifest: Manifest) -> Kept | None:
    """Return the newest kept checkpoint that the active environment reads."""
    read = (kept for kept in manifest.kept if manifest.current in kept.readable_by)
    return max(read, key=lambda kept: kept.saved.timestamp() if kept.saved else 0.0, default=None)


@frozen(kw_only=True)
class StrandedRun:
    """A run whose newest save an environment cannot read, and what that environment has of it instead.

    `boat` is the newest lifeboat of the run that it reads. Steps are None where the names do not tell them.
    """

    run: Run
    newest_readable: str | None
    steps_behind: int | None
    boat: Kept | None = None
    boat_behind: int | None = None


def list_stranded(
    runs: Iterable[Run], environment: Environment, manifest: Manifest
) -> tuple[StrandedRun, ...]:
    """Return the runs that have gone on without an environment, as the scan of `runs` saw them."""
    return tuple(_strand(run, environment, manifest) for run in runs if _is_stranded(run, environment))


def _is_stranded(run: Run, environment: Environment) -> bool:
    number = environment.number
    readable = run.newest_readable.get(number)
    is_judged = number not in run.unjudged_for and number not in run.unknown_for
    return bool(is_judged and run.newest and readable != run.newest and behind(run.newest, readable) != 0)


def _strand(run: Run, environment: Environment, manifest: Manifest) -> StrandedRun:
    readable = run.newest_readable.get(environment.number)
    mine = (
        kept
        for kept in manifest.kept
        if environment.number in kept.readable_by and kept.path.startswith(f"{run.path}/")
    )
    boat = max(mine, key=lambda kept: kept.saved.timestamp() if kept.saved else 0.0, default=None)
    return StrandedRun(
        run=run,
        newest_readable=readable,
        steps_behind=behind(run.newest, readable),
        boat=boat,
        boat_behind=behind(run.newest, boat.path.rpartition("/")[2]) if boat else None,
    )


def describe_lifeboat(stranded: StrandedRun, now: datetime) -> Iterator[str]:
    """Yield how far back the lifeboat of a stranded run is, or how to protect one where there is none."""
    boat = stranded.boat
    if boat is not None:
        steps = f", {count(stranded.boat_behind, 'step')} behind" if stranded.boat_behind else ""
        saved = f", saved {describe_age((now - boat.saved).total_seconds())}" if boat.saved else ""
        yield f"lifeboat: {make_printable(boat.path)}{steps}{saved}"
    elif stranded.newest_readable is not None:
        path = make_printable(f"{stranded.run.path}/{stranded.newest_readable}")
        yield f"no lifeboat: protect one with `torchenv checkpoints keep {path}`"


def out_of_reach(manifest: Manifest, torch: Version) -> list[str]:
    """Describe each run whose newest save a torch is too old for, as the last scan saw it."""
    from packaging.version import Version

    return [
        f"{make_printable(run.path)}: {make_printable(run.newest)} needs torch {run.needs},"
        f" and torch {torch} cannot read it"
        for run in manifest.runs
        if run.newest and run.needs and torch.release[:2] < Version(run.needs).release
    ]


def describe_run(run: Run, environment: Environment, *, advice: bool = True) -> Iterator[str]:
    """Yield what an environment reads of a run, as last scanned; nothing where it reads the newest.

    The `advice` is the command that makes a copy that can be read.
    """
    number, newest = environment.number, run.newest
    readable = run.newest_readable.get(number)
    back = behind(newest, readable)
    path = make_printable(run.path)
    if number in run.unjudged_for:
        yield f"{path}: {describe_unjudged(environment)}"
    elif newest is not None and readable is not None and readable != newest and back == 0:
        where = normpath(f"{run.path}/{readable}") if readable.startswith("../") else readable
        as_good = f"its copy {make_printable(where)}" if is_copy(readable) else make_printable(readable)
        yield f"{path}: {make_printable(newest)} cannot be read by environment {environment}; {as_good} can"
    elif newest is not None and readable != newest and number in run.unknown_for:
        newest_known = f"; {make_printable(readable)} is readable" if readable else ""
        saved = make_printable(newest)
        yield f"{path}: whether environment {environment} reads {saved} is unknown{newest_known}"
    elif newest is not None and readable != newest:
        needed = run.lacks.get(number) or _find_newer_torch(run, environment)
        needs = f" (it needs {needed})" if needed else ""
        found = "no checkpoint in this run is readable"
        if readable:
            found = f"{make_printable(readable)} is the newest readable save"
        steps = f", {count(back, 'step')} behind" if back else ""
        saved = make_printable(newest)
        yield f"{path}: {saved} cannot be read by environment {environment}{needs}; {found}{steps}"
        if advice and number in run.downgrades_for and environment.torch:
            line = ".".join(environment.torch.split(".")[:2])
            yield f"  copy it with `torchenv checkpoints downgrade {path}/{saved} --for {line}`"
    if run.broken:
        incomplete = f"newer than {make_printable(newest)} but incomplete" if newest else "incomplete"
        yield f"{path}: {incomplete}: {', '.join(map(make_printable, run.broken))}"
    if run.writing:
        yield f"{path}: being written or just stopped: {', '.join(map(make_printable, run.writing))}"


def _find_newer_torch(run: Run, environment: Environment) -> str | None:
    """Return the torch that reads the newest of a run, where that of the environment is older."""
    from packaging.version import Version

    if run.needs is None or environment.torch is None:
        return None
    is_older = Version(environment.torch).release[:2] < Version(run.needs).release
    return f"torch {run.needs}" if is_older else None


def describe_unjudged(environment: Environment) -> str:
    """Describe that no scan has seen what an environment reads."""
    return f"not scanned since environment {environment.number} was made; run `torchenv checkpoints scan`"


def make_printable(name: str) -> str:
    """Write the name of a file so that it cannot act on a terminal."""
    return name if name.isprintable() else ascii(name)
