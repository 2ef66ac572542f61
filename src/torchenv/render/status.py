"""The state of a workspace, what differs and what was found, as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from torchenv.actions.diff import Differences, PackageChange
from torchenv.actions.remove import Pruned, Removed
from torchenv.actions.status import StatusReport
from torchenv.checkpoints.lifeboats import StrandedRun, describe_lifeboat, describe_run
from torchenv.environment.findings import EnvironmentFinding
from torchenv.storage.carry import describe_size
from torchenv.system.documents import plain
from torchenv.workspace.keys import as_json
from torchenv.workspace.records import Environment, State


def encode_status(status: StatusReport, root: Path) -> dict[str, Any]:
    """Return the `torchenv.status/1` document."""
    return {
        "schema": "torchenv.status/1",
        "root": str(root),
        "current": as_json(status.current) if status.current else None,
        "rollback": status.before.number if status.before else None,
        "problems": plain(status.problems),
        "running": plain(status.running),
        "disk": {"bytes": {str(number): size for number, size in status.sizes.items()}},
        "removed": [environment.number for environment in status.removed],
        "trial": status.is_on_trial,
        "checkpoints": [_encode_stranded(stranded) for stranded in status.stranded],
    }


def _encode_stranded(stranded: StrandedRun) -> dict[str, Any]:
    boat = stranded.boat
    return {
        "run": stranded.run.path,
        "newest": stranded.run.newest,
        "newest_readable": stranded.newest_readable,
        "steps_behind": stranded.steps_behind,
        "lifeboat": {**as_json(boat), "steps_behind": stranded.boat_behind} if boat else None,
    }


def describe_status(status: StatusReport, root: Path, now: datetime) -> str:
    """Describe it in one look."""
    return "\n".join(_status_lines(status, root, now))


def describe_stranded(stranded: StrandedRun, environment: Environment, now: datetime) -> Iterator[str]:
    """Yield what an environment cannot read of a run, then how far back its lifeboat is."""
    yield from describe_run(stranded.run, environment)
    yield from (f"  {line}" for line in describe_lifeboat(stranded, now))


def encode_diff(before: Environment, after: Environment, differences: Differences) -> dict[str, Any]:
    """Return the `torchenv.diff/1` document."""
    return {
        "schema": "torchenv.diff/1",
        "from": before.number,
        "to": after.number,
        "python": _change(differences.python),
        "backend": _change(differences.backend),
        "packages": [_change(package) for package in differences.packages],
    }


def describe_diff(differences: Differences) -> str:
    """Describe what differs, one line each: `+`, `-`, or from and to."""
    changes = (differences.backend, differences.python, *differences.packages)
    return "\n".join(str(change) for change in changes if change is not None)


def encode_findings(environment: Environment, findings: tuple[EnvironmentFinding, ...]) -> dict[str, Any]:
    """Return the `torchenv.verify/1` document."""
    return {
        "schema": "torchenv.verify/1",
        "environment": environment.number,
        "path": environment.path,
        "findings": plain(findings),
    }


def describe_removed(removed: Removed) -> str:
    """Describe what went, what it gave back and what is lost with it."""
    environment = removed.environment
    lines = [f"removed environment {environment} ({_describe_freed(removed)})"]
    if removed.is_lost:
        lines.append("  it cannot be rebuilt: its lock file is gone or damaged")
        return "\n".join(lines)
    lines.append(f"  rebuild it with `torchenv restore {environment.number}`")
    if removed.by_hand:
        lines.append(f"  not rebuilt with it, as added by hand: {', '.join(removed.by_hand)}")
    return "\n".join(lines)


def _describe_freed(removed: Removed) -> str:
    """Describe what it gives back in the figure of `status`, and what of that stays in uv's cache."""
    size = max(removed.size or 0, removed.freed)
    freed, whole = describe_size(removed.freed), describe_size(size)
    return (
        f"{whole} freed" if whole == freed else f"{whole}, of which {freed} freed: uv's cache holds the rest"
    )


def describe_pruned(pruned: Pruned, *, dry_run: bool) -> str:
    """Describe what went, or would go, and what stays though it is old."""
    return "\n".join(_describe_pruned_lines(pruned, dry_run=dry_run))


def _status_lines(status: StatusReport, root: Path, now: datetime) -> Iterator[str]:
    current = status.current
    yield f"workspace: {root}"
    if current is None:
        yield "No active environment"
    else:
        yield f"active: environment {current}, {current.kind.value}, {current.state.value}"
        yield f"  {current.path}"
        torch = f"torch {current.torch}" if current.torch else "no torch"
        yield f"  {torch} on Python {current.python.version}"
    yield _describe_way_back(status.before)
    if status.before is not None:
        stranded = {run.run.path: run for run in status.stranded}
        for run in status.runs:
            lines = (
                describe_stranded(stranded[run.path], status.before, now)
                if run.path in stranded
                else describe_run(run, status.before)
            )
            yield from (f"  {line}" for line in lines)
    if status.is_on_trial:
        yield "upgrade: on trial; end it with `torchenv commit`"
    if status.sizes:
        count = len(status.sizes)
        size = describe_size(sum(status.sizes.values()))
        yield f"disk: {size} in {count} built environment{'s' if count > 1 else ''}"
    if status.removed:
        names = ", ".join(map(str, status.removed))
        yield f"removed: {names}; rebuild with `torchenv restore {status.removed[-1].number}`"
    yield from (f"in use by: {item}" for item in status.running)
    yield from (f"note: {problem.message}" for problem in status.problems)


def _describe_way_back(before: Environment | None) -> str:
    if before is None:
        return "No previous environment to roll back to"
    failed = ", whose smoke commands failed" if before.state is State.FAILED else ""
    return f"rollback: to environment {before}{failed}"


def _change(change: PackageChange | None) -> dict[str, str | None] | None:
    return None if change is None else {"name": change.name, "from": change.before, "to": change.after}


def _describe_pruned_lines(pruned: Pruned, *, dry_run: bool) -> Iterator[str]:
    for item in pruned.gone:
        yield f"{'would remove' if dry_run else 'removed'} environment {item}"
    for environment, why in pruned.kept:
        yield f"kept environment {environment}: {why}"
    if not pruned.gone:
        yield "nothing to remove"
