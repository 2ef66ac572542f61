"""Environments as people and programs read them."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchenv.actions.verify import find_wrong_in
from torchenv.checkpoints.lifeboats import describe_run, describe_unjudged, make_printable
from torchenv.checkpoints.steps import behind
from torchenv.errors import ToolFailed
from torchenv.system.documents import plain
from torchenv.workspace.keys import as_json
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, EnvironmentKind, Proof, Run, State
from torchenv.workspace.store import Store, constraints_path

if TYPE_CHECKING:
    from torchenv.actions.change import Changed
    from torchenv.actions.create import CreateOrder, CreateOutcome


# So many runs are shown where nobody asks for all.
RUNS_SHOWN = 10


def describe_list(manifest: Manifest, *, show_all: bool = False) -> str:
    """Write one line an environment, the active one marked with a star, and one line a run.

    Without `show_all` removed environments and all but the newest runs are only counted.
    """
    shown = [
        environment
        for environment in manifest.environments
        if show_all or environment.state is not State.REMOVED
    ]
    rows = [
        (
            "*" if environment.number == manifest.current else "",
            str(environment.number),
            _name(environment),
            _state(environment),
            describe_reads(environment),
            environment.path,
        )
        for environment in shown
    ]
    runs = manifest.runs if show_all else manifest.runs[:RUNS_SHOWN]
    lines = [columns(rows)] if rows else []
    if runs:
        there = [environment for environment in manifest.environments if environment.on_disk]
        lines.append(columns([describe_run_row(run, there) for run in runs]))
    lines += count_hidden(len(manifest.environments) - len(shown), len(manifest.runs) - len(runs))
    unjudged = {number for run in runs for number in run.unjudged_for}
    lines += [
        describe_unjudged(environment)
        for environment in manifest.environments
        if environment.on_disk and environment.number in unjudged
    ]
    return "\n".join(lines)


def count_hidden(removed: int, runs: int) -> Iterator[str]:
    """Yield a line on how many environments and runs are not shown, where there are some."""
    parts = [
        f"{count} {what}{'s' if count != 1 else ''}"
        for count, what in ((removed, "removed environment"), (runs, "more run"))
        if count
    ]
    if parts:
        yield f"{' and '.join(parts)} not shown (see --all)"


def describe_reads(environment: Environment) -> str:
    """Describe which distributed checkpoints an environment reads: `dcp<=2.14` in words."""
    reads = environment.reads or ""
    return f"reads up to torch {reads.removeprefix('dcp<=')}" if reads.startswith("dcp<=") else reads


def encode_environment(environment: Environment, store: Store) -> dict[str, Any]:
    """Return everything that is recorded of an environment, with its plan and the path of its lock."""
    lock = store.lock_path(environment.number)
    return {
        **as_json(environment),
        "checkpoints": [_of_run(run, environment) for run in store.read().runs],
        "plan": _read_plan(environment, store),
        "lock-path": str(lock) if os.path.isfile(lock) else None,
        "findings": plain(find_wrong_in(environment, store)),
    }


def describe_show(environment: Environment, store: Store) -> str:
    """Describe everything that is recorded of an environment."""
    return "\n".join(_show_lines(environment, store))


def describe_made(
    made: CreateOutcome, order: CreateOrder, *, program: str = "torchenv", is_last: bool = True
) -> str:
    """Describe what `create` made, and as the last word what to do next by a command of `program`."""
    return "\n".join(_describe_made_lines(made, order, program if is_last else None))


def describe_change(changed: Changed) -> str:
    """Describe what `add` or `drop` changed, what stayed, and which environment is active now."""
    return "\n".join(_describe_change_lines(changed))


def _describe_change_lines(changed: Changed) -> Iterator[str]:
    before, after = changed.before, changed.after
    if not changed.packages:
        yield f"environment {before} already has that: nothing changed"
        return
    stayed = f"{changed.same} package{'' if changed.same == 1 else 's'} kept at the same version"
    if after.number == before.number:
        yield f"changed environment {after} in place; {stayed}"
    else:
        yield f"made environment {after} beside {before}; {stayed}"
    yield from (f"  {package}" for package in changed.packages)
    if changed.by_hand:
        yield f"  left out, as installed by hand and in no lock file: {', '.join(changed.by_hand)}"
    if after.number == before.number:
        return
    if changed.is_active:
        yield f"environment {after} is now active; switch back with `torchenv rollback`"
    else:
        yield f"environment {before} stays active, as the profile requires smoke commands to pass"
        yield f"next: torchenv smoke {after.number}, then torchenv use {after.number}"


def describe_proof(proof: Proof) -> str:
    """Describe in one line what was checked, when, on which machine and devices, and with which torch."""
    ended = "passed" if proof.passed else "failed"
    host = f" on {proof.host}" if proof.host else ""
    devices = f"on {', '.join(proof.devices)}" if proof.devices else "without a device"
    build = f", torch built from {proof.git[:12]}" if proof.git else ""
    return f"{proof.what} {ended} at {proof.at:%Y-%m-%d %H:%M}{host}, {devices}{build}"


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Set rows of words in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _name(environment: Environment) -> str:
    """Return its name, with its torch where a person has named it otherwise."""
    torch = environment.torch
    if torch is None or environment.name.startswith(torch.partition("+")[0]):
        return environment.name
    return f"{environment.name} (torch {torch})"


def _state(environment: Environment) -> str:
    if environment.kind is EnvironmentKind.BUILT:
        return environment.state.value
    # Nobody built it here, so that it is ready says nothing.
    checked = f", {environment.state.value}" if environment.state is not State.READY else ""
    return f"{environment.kind.value}{checked}"


def describe_run_row(run: Run, there: Sequence[Environment]) -> tuple[str, ...]:
    """Write a run with its newest save, and for each environment the newest that it reads and the lag."""
    name = f"{make_printable(run.path)}:"
    if run.newest is None:
        return (name, "no complete checkpoint", *("" for _ in there))
    marks = (f"{environment.number}: {_mark(run, environment)}" for environment in there)
    return (name, f"newest {make_printable(run.newest)}", *marks)


def _mark(run: Run, environment: Environment) -> str:
    if environment.number in run.unjudged_for:
        return "not scanned"
    reads = run.newest_readable.get(environment.number)
    if reads is None:
        return "reads none"
    with_code = " with code" if environment.number in run.with_code_for else ""
    if reads == run.newest:
        return f"reads it{with_code}"
    back = behind(run.newest, reads)
    lag = f" ({back} step{'s' if back != 1 else ''} behind)" if back else ""
    return f"reads {make_printable(reads)}{with_code}{lag}"


def _of_run(run: Run, environment: Environment) -> dict[str, Any]:
    readable = run.newest_readable.get(environment.number)
    return {
        "run": run.path,
        "newest": run.newest,
        "newest_readable": readable,
        "steps_behind": behind(run.newest, readable),
        "judged": environment.number not in run.unjudged_for,
    }


# What is shown of a plan: a document without these is none.
_SHOWN_OF_A_PLAN = frozenset({"requested", "outcome", "requirements", "python", "index", "why"})


def _read_plan(environment: Environment, store: Store) -> dict[str, Any] | None:
    """Return the document of the plan that it was built from; None where none was kept whole."""
    try:
        plan = json.loads(store.plan_path(environment.number).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return plan if isinstance(plan, dict) and plan.keys() >= _SHOWN_OF_A_PLAN else None


def _show_lines(environment: Environment, store: Store) -> Iterator[str]:
    yield f"environment {environment}: {environment.kind.value}, {environment.state.value}"
    yield f"path: {environment.path}"
    yield from (f"warning: {finding.advice}" for finding in find_wrong_in(environment, store))
    yield f"python: {environment.python.version} on {environment.python.path}"
    yield f"torch: {environment.torch or 'none'}, from {environment.index or 'the default package index'}"
    yield f"checkpoints: {describe_reads(environment) or 'not known'}"
    yield from (
        f"checkpoints: {line}" for run in store.read().runs for line in describe_run(run, environment)
    )
    plan = _read_plan(environment, store)
    if plan is not None:
        yield f"plan: {plan['requested']}, {plan['outcome']}: {' '.join(plan['requirements'])}"
        yield f"  for Python {plan['python']['version']}, from {plan['index'] or 'the default package index'}"
        yield from (f"  because {reason}" for reason in plan["why"])
    if environment.choice is not None:
        if plan is None:
            yield from (f"because {reason}" for reason in environment.choice.because)
        yield from (f"ignored: {setting}" for setting in environment.choice.ignored)
        yield from (f"note: {warning}" for warning in environment.choice.warnings)
        if environment.choice.added:
            yield f"added: {', '.join(environment.choice.added)}"
    for proof in environment.proofs:
        yield f"proof: {describe_proof(proof)}"
        yield from (f"  {line}" for line in proof.said)
    lock = store.lock_path(environment.number)
    if os.path.isfile(lock):
        yield f"lock: {lock}"
    if os.path.isfile(constraints_path(Path(environment.path))):
        # What is recorded can be told without it.
        with suppress(ToolFailed):
            yield f"to add to it: {_adding_to(environment)}"


def _describe_made_lines(made: CreateOutcome, order: CreateOrder, program: str | None) -> Iterator[str]:
    environment, number = made.environment, made.environment.number
    if not made.new:
        yield f"environment {environment} already has all of it: nothing was made (--again makes another)"
        return
    yield f"made environment {environment}"
    yield f"  {environment.path}"
    if order.ignored:
        yield f"  ignoring your {', '.join(order.ignored)}"
    fallback = made.fallback
    if fallback is not None:
        kept = fallback.environment
        untouched = (
            "unchanged (every file compared)"
            if not made.changed_by_others
            else "changed by another process meanwhile"
        )
        yield f"  environment {kept}: {untouched}"
        yield from (f"    {change}" for change in made.changed_by_others[:5])
    if order.build.unproven:
        yield "  untested until run on a GPU"
    yield f"  constraints for what is added by hand: {constraints_path(Path(environment.path))}"
    if program is not None:
        yield f"next: {program} run -e {number} -- python -c 'import torch; print(torch.__version__)'"


def _adding_to(environment: Environment) -> str:
    """Write the command that adds a package by hand and replaces nothing that is there."""
    # `list` needs none of what uv takes to import.
    from torchenv.installers.uv import uv_program

    held = constraints_path(Path(environment.path))
    # torchenv's own, which need not be on PATH.
    words = [str(uv_program()), "pip", "install", "--python", environment.path, "-c", str(held), "PACKAGE"]
    return shlex.join(words)
