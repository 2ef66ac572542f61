"""Hold a run back from a release that cannot be left again: for CI, and the end of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from torchenv.actions.checkpoints import Paths, note_copies, read_index
from torchenv.actions.downgrade import DowngradeTarget
from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.scan.index import ScanIndex
from torchenv.checkpoints.scan.runs import Save, Saves, runs_of
from torchenv.storage import place
from torchenv.system.garbage import no_garbage_collection
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Kept
from torchenv.workspace.store import Store


@frozen
class GateFinding:
    """What a gate holds back; `code` is unreadable, no-lifeboat or lifeboat-old."""

    code: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@frozen(kw_only=True)
class Gate:
    """What was looked at, and what was found."""

    runs: int
    findings: tuple[GateFinding, ...]


def check_gate(
    roots: Sequence[str], store: Store, target: DowngradeTarget, *, oldest: timedelta | None, now: datetime
) -> Gate:
    """Look whether the newest complete save of every run, or a copy of it, is read by the target.

    With `oldest` there must be a lifeboat that the target reads and that was saved no longer ago. Records
    nothing. Raises `InputError` for a root that is not there.
    """
    with no_garbage_collection():
        index = scan([place(root) for root in roots], read_index(store), lambda _: None)
        note_copies(index, store.read(), store)
        runs = [run for run in runs_of(index, Paths.of(store).display) if run.originals]
        findings = [finding for run in runs for finding in _check_run(run, index, target)]
    if oldest is not None:
        findings += _check_lifeboat(store.read(), target, oldest, now)
    return Gate(runs=len(runs), findings=tuple(findings))


def _check_run(run: Saves, index: ScanIndex, target: DowngradeTarget) -> Iterator[GateFinding]:
    originals = [save for save in run.originals if save.complete]
    if not originals:
        return
    newest = originals[-1]
    copies = [save for save in run.saves if save.resumes and save.copy_kind and save.step == newest.step]
    if any(not _find_refusals(save, index, target) for save in (newest, *copies)):
        return
    reasons = dict.fromkeys(_find_refusals(newest, index, target))
    said = f"torch {target.torch} cannot read it: {'; '.join(reasons)}"
    yield GateFinding("unreadable", newest.path, said)


def _find_refusals(save: Save, index: ScanIndex, target: DowngradeTarget) -> list[str]:
    """Return why the target cannot read a save; classes of the user's own are no reason."""
    refusals = []
    for part in save.parts:
        reader = index.readers[part.found.reader]
        if reader.reads(target.torch, target.python, target.system) is False:
            refusals += [note.message for note in target.find_obstacles(reader)] or [
                "its format is unknown to that release"
            ]
    return refusals


def _check_lifeboat(
    manifest: Manifest, target: DowngradeTarget, oldest: timedelta, now: datetime
) -> Iterator[GateFinding]:
    readers = {
        environment.number
        for environment in manifest.environments
        if environment.torch and target.is_of(environment.torch)
    }
    kept = [one for one in manifest.kept if readers & set(one.readable_by)]
    newest = max(kept, key=_find_time, default=None)
    if newest is None or newest.saved is None:
        said = f"no lifeboat that torch {target.torch} reads; keep one: see `torchenv help checkpoints keep`"
        yield GateFinding("no-lifeboat", "", said)
    elif now - newest.saved > oldest:
        age, most = now - newest.saved, oldest
        said = f"the newest lifeboat was saved {_days(age)} ago, and the profile allows {_days(most)}"
        yield GateFinding("lifeboat-old", newest.path, said)


def _find_time(kept: Kept) -> float:
    return kept.saved.timestamp() if kept.saved else 0.0


def _days(length: timedelta) -> str:
    hours = int(length.total_seconds() // 3600)
    number, unit = (hours, "hour") if hours < 48 else (hours // 24, "day")
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
