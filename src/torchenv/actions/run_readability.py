"""Which saves of training runs an environment reads, and copies of those that it does not."""

from __future__ import annotations

from collections.abc import Callable

from torchenv.actions.checkpoints import Paths, note_copies, read_index, scan_and_record
from torchenv.actions.downgrade import Copied, DowngradeTarget, downgrade
from torchenv.actions.rescan import find_copies
from torchenv.actions.switch import Switched
from torchenv.checkpoints.scan.runs import READS, Judge, Saves, runs_of
from torchenv.checkpoints.steps import behind
from torchenv.errors import TorchenvError
from torchenv.storage import Progress, place
from torchenv.system.garbage import no_garbage_collection
from torchenv.system.values import frozen
from torchenv.workspace.records import Environment, Run
from torchenv.workspace.store import Store


@frozen(kw_only=True)
class RunReadability:
    """A training run as an environment sees it; everything is named by its path."""

    run: str
    newest_readable: str | None
    steps_behind: int | None
    unreadable: tuple[str, ...]
    downgradable: tuple[str, ...]


def judge_runs(switched: Switched, store: Store, system: str) -> tuple[RunReadability, ...]:
    """Describe every run, from the index where there is one, else from the manifest's line of it."""
    if not switched.runs:
        return ()
    with no_garbage_collection():
        return _judge_runs(switched, store, system)


def _judge_runs(switched: Switched, store: Store, system: str) -> tuple[RunReadability, ...]:
    index = read_index(store)
    if index is None:
        return tuple(_by_line(run, switched.now) for run in switched.runs)
    note_copies(index, store.read(), store)
    judge = Judge(index, [switched.now], system)
    lines = {run.path: run for run in switched.runs}
    found = {run.path: run for run in runs_of(index, Paths.of(store).display) if run.path in lines}
    return tuple(
        _by_saves(found[path], line, judge, switched.now) if path in found else _by_line(line, switched.now)
        for path, line in lines.items()
    )


def copy_newest_saves(
    switched: Switched, store: Store, *, system: str, progress: Progress, say: Callable[[str], None]
) -> tuple[tuple[Copied, ...], tuple[str, ...]]:
    """Copy the newest save of every run that the environment cannot read, where a copy can be read.

    Gives the copies, and a sentence on each run of which none can be made; what was copied is scanned.
    """
    now, paths = switched.now, Paths.of(store)
    assert now.torch is not None
    line = ".".join(now.torch.split(".")[:2])
    target = DowngradeTarget(torch=line, python=now.python.version, system=system)
    copies: list[Copied] = []
    refused: list[str] = []
    for run in switched.runs:
        readable = run.newest_readable.get(now.number)
        if run.newest is None or readable == run.newest or behind(run.newest, readable) == 0:
            continue
        shown = f"{run.path}/{run.newest}"
        try:
            copied = downgrade(paths.address(shown), target, progress=progress)
        except (OSError, TorchenvError) as error:
            refused.append(f"{shown}: {error}")
            continue
        if copied.made:
            store.note_copy("downgraded", copied.copy, copied.source)
            say(f"copied {copied.source} to {copied.copy}, which torch {line} reads")
        copies.append(copied)
    index = read_index(store)
    if index is not None and any(copied.made for copied in copies):
        roots = find_copies([*index.roots])
        scan_and_record([place(root) for root in roots], store, whole=True, system=system, say=say)
    return tuple(copies), tuple(refused)


def _by_saves(run: Saves, line: Run, judge: Judge, environment: Environment) -> RunReadability:
    complete = [save for save in run.saves if save.resumes]
    readable = [save for save in complete if judge.of_save(save, environment) in READS]
    unreadable = [save for save in complete if judge.of_save(save, environment) == "unreadable"]
    newest = readable[-1] if readable else None
    return RunReadability(
        run=run.path,
        newest_readable=newest.path if newest else None,
        steps_behind=behind(line.newest, newest.name) if newest else None,
        unreadable=tuple(save.path for save in unreadable),
        downgradable=tuple(save.path for save in unreadable if judge.of_copy(save, environment)),
    )


def _by_line(run: Run, environment: Environment) -> RunReadability:
    readable = run.newest_readable.get(environment.number)
    judged = environment.number not in run.unjudged_for
    unread = (f"{run.path}/{run.newest}",) if judged and run.newest and run.newest != readable else ()
    return RunReadability(
        run=run.path,
        newest_readable=f"{run.path}/{readable}" if readable else None,
        steps_behind=behind(run.newest, readable),
        unreadable=unread,
        downgradable=unread if environment.number in run.downgrades_for else (),
    )
