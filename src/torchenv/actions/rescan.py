"""Look again at the checkpoints before anything is said of them, within a time that nobody notices."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from glob import escape
from pathlib import Path

from torchenv.actions.checkpoints import Paths, Scanned, judge_index, read_index, record_index
from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.scan.index import ScanIndex
from torchenv.checkpoints.scan.runs import run_lines
from torchenv.checkpoints.steps import is_save, original_of
from torchenv.errors import TorchenvError
from torchenv.storage import Folder, is_remote
from torchenv.storage.local import LocalPlace
from torchenv.storage.names import is_skipped
from torchenv.system.garbage import no_garbage_collection
from torchenv.system.looking import find_paths
from torchenv.system.values import frozen
from torchenv.system.words import describe_age
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Run
from torchenv.workspace.store import Store

# Where trainers write when nobody tells them otherwise.
CONVENTIONAL = ("checkpoints", "lightning_logs", "outputs", "results", "runs")

LIMIT = 2.0  # seconds


@frozen(kw_only=True)
class Rescan:
    """The runs below `roots` as they are now, as far as `notes` do not say otherwise."""

    roots: tuple[str, ...]
    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()
    scanned: Scanned | None = None


def rescan(
    named: Sequence[str],
    store: Store,
    *,
    system: str,
    record: bool = True,
    now: float,
    clock: Callable[[], float] = time.monotonic,
    limit: float = LIMIT,
    manifest: Manifest | None = None,
) -> Rescan:
    """Look again below the roots of the last scan and those `named`; reads no network.

    What could not be looked at within `limit` seconds is as the last scan saw it, and a note says how old
    that is: `now` is in seconds since 1970. With `record` the workspace learns of what has changed; a
    `manifest` in place of the recorded one says whose reading is asked for.
    """
    with no_garbage_collection():
        before, paths = read_index(store), Paths.of(store)
        manifest = manifest or store.read()
        # Without an index the manifest still says where the runs were.
        known = before.roots if before else [paths.address(run.path) for run in manifest.runs]
        roots = _outermost(find_copies([*known, *named]))
        if not roots or not manifest.environments:
            return Rescan(roots=(), runs=manifest.runs)
        index, places, notes = _look(roots, before, clock, limit)
        notes += _describe_unseen(index, before, places, store, now)
        runs = scanned = None
        if record:
            try:
                scanned, runs = record_index(index, before, store, system=system, say=notes.append)
            except TorchenvError as error:
                # A full disk must not stop a rollback, nor hide what it would lose.
                notes.append(f"what changed could not be recorded: {error.message}")
        if runs is None:
            scanned = judge_index(index, manifest, store, system)
            runs = run_lines(scanned.runs, scanned.judge)
        notes += _describe_forgotten(manifest.runs, runs, places, paths)
        roots_shown = tuple(map(paths.display, roots))
        return Rescan(roots=roots_shown, runs=runs, notes=tuple(notes), scanned=scanned)


def _look(
    roots: Sequence[str], before: ScanIndex | None, clock: Callable[[], float], limit: float
) -> tuple[ScanIndex, Sequence[_TimedPlace], list[str]]:
    """Look below the roots on this machine; an index with what was not seen now as it was before."""
    deadline = clock() + limit
    places = [_TimedPlace(Path(root), lambda: clock() > deadline) for root in roots if not is_remote(root)]
    index = scan([place for place in places if place.exists()], before, lambda _: None)
    notes = [note for place in places for note in place.closed]
    for place in places:
        # One that is gone may come back: a disk that is not mounted.
        index.roots.setdefault(place.address, {})
    cut = {place.address for place in places if place.why}
    for root, folders in before.roots.items() if before else ():
        if is_remote(root) or root in cut:
            index.roots[root] = {**folders, **index.roots.get(root, {})}
    return index, places, notes


def find_roots(
    profile_roots: Iterable[str], written: Iterable[str], project: Path | None, home: Path | None
) -> tuple[str, ...]:
    """Return where checkpoints are, without being told: the profile's roots, then where a run wrote one.

    Then what goes by a usual name in the project. Only what is there is given, and never the home directory.
    """
    found = list(profile_roots)
    for folder in map(Path, written):
        # A folder that is itself a save: the run is above.
        run = folder.parent if is_save(folder.name) else folder
        if os.path.isdir(run) and run not in (home, run.parent):
            found.append(str(run))
    if project is not None:
        found += [str(project / name) for name in CONVENTIONAL if os.path.isdir(project / name)]
    return tuple(dict.fromkeys(found))


def find_copies(roots: Iterable[str]) -> list[str]:
    """Return roots with the directories beside them that hold downgraded copies: runs/a, runs/a-for-2.14."""
    found: list[str] = []
    for root in roots:
        found.append(root)
        if not is_remote(root):
            path = Path(root)
            found += sorted(
                str(beside)
                for beside in find_paths(path.parent, f"{escape(path.name)}-*")
                if original_of(beside.name) == path.name != beside.name and os.path.isdir(beside)
            )
    return list(dict.fromkeys(found))


class _TimedPlace(LocalPlace):
    """A place whose walk ends when its time is over, or where it may not be looked into."""

    def __init__(self, path: Path, is_over: Callable[[], bool]) -> None:
        super().__init__(path)
        self._is_over = is_over
        self.why = ""  # why it was not walked to its end
        self.closed: list[str] = []  # sentences on the directories in it that could not be looked into

    def walk(
        self, known: Mapping[str, Folder], apart_from: Collection[str] = ()
    ) -> Iterator[tuple[str, Folder]]:
        if self._is_over():
            self.why = "time"
            return
        try:
            for address, folder in super().walk(known, apart_from):
                yield address, folder
                if folder.closed:
                    self.closed.append(f"{address} {folder.closed}")
                if self._is_over():
                    self.why = "time"
                    return
        except OSError as error:
            self.why = error.strerror or str(error)


def _outermost(roots: Iterable[str]) -> list[str]:
    """Leave out the roots that are below others: what is there would be told twice."""
    kept: dict[str, str] = {}
    for root in sorted(dict.fromkeys(roots), key=len):
        between = "/" if is_remote(root) else os.sep
        inside = (
            above
            for above in map(kept.get, _list_above(root, between))
            if above is not None and not any(map(is_skipped, root[len(above) :].split(between)))
        )
        if not any(inside):
            kept[root.rstrip(between)] = root
    return list(kept.values())


def _list_above(path: str, between: str) -> Iterator[str]:
    """Yield the folders that a path lies in, without what divides their names at their end."""
    at = path.find(between)
    while at >= 0:
        yield path[:at].rstrip(between)
        at = path.find(between, at + 1)


def _describe_unseen(
    index: ScanIndex, before: ScanIndex | None, places: Sequence[_TimedPlace], store: Store, now: float
) -> Iterator[str]:
    age = (
        f"as last recorded {describe_age(now - store.index_path.stat().st_mtime)}"
        if before
        else "not known yet"
    )
    for place in places:
        if place.why == "time":
            yield (
                f"{place.address}: scanned in part, for {LIMIT:g} s; the rest is {age}"
                " (`torchenv checkpoints scan` reads all of it)"
            )
        elif place.why:
            yield f"{place.address} cannot be opened ({place.why}): it is {age}"
    for root in index.roots:
        if is_remote(root):
            yield f"{root}: not scanned again; {age}"


def _describe_forgotten(
    before: Iterable[Run], now: Iterable[Run], places: Iterable[LocalPlace], paths: Paths
) -> Iterator[str]:
    """Name the roots that are gone: a disk may only be away for a while."""
    left = {run.path for run in now}
    lost = (run.path for run in before if run.path not in left)
    gone_below = Counter(folder for path in lost for folder in {path, *_list_above(path, "/")})
    for place in places:
        shown = paths.display(place.address)
        gone = gone_below[shown]
        if gone and not place.exists():
            runs = "1 run" if gone == 1 else f"{gone} runs"
            yield f"{shown} no longer exists: forgot {runs}"
