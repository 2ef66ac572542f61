"""Find checkpoints, judge who can read them, and record what a scan saw."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torchenv.checkpoints.scan import scan, scan_into
from torchenv.checkpoints.scan.index import Found, ScanIndex
from torchenv.checkpoints.scan.runs import READS, Judge, Saves, run_line, run_lines, runs_of
from torchenv.checkpoints.values import runs_code
from torchenv.errors import InputError, NothingSuits, TorchenvError
from torchenv.storage import Place, is_remote, place
from torchenv.system.garbage import no_garbage_collection
from torchenv.system.looking import find_paths, resolve_parents
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, Kept, Run
from torchenv.workspace.store import InPlace, Moved, Store

if TYPE_CHECKING:
    from torchenv.checkpoints.contents import Contents

Say = Callable[[str], None]


@frozen(kw_only=True)
class Scanned:
    """What was found: the runs with their saves, and who can read what."""

    roots: tuple[str, ...]
    index: ScanIndex
    runs: tuple[Saves, ...]
    judge: Judge
    kept: frozenset[str] = frozenset()

    @property
    def foreign(self) -> bool:
        """Whether any checkpoint holds names that could run code; classes of the user's own are none."""
        return any(any(map(runs_code, found.foreign)) for _, _, _, found in self.index)


@frozen
class Paths:
    """How the record names places: what lies beside the workspace, by its path from there."""

    base: Path

    @classmethod
    def of(cls, store: Store) -> Paths:
        """Return those of a workspace; its directory and what is beside it may move together."""
        return cls(store.root.absolute().parent)

    def display(self, address: str) -> str:
        """Return the path by which an address is recorded."""
        inside = f"{self.base}{os.sep}"
        if not address.startswith(inside):
            return address
        return address[len(inside) :] if os.sep == "/" else address[len(inside) :].replace(os.sep, "/")

    def address(self, shown: str) -> str:
        """Return the address of what is recorded by this path."""
        return shown if is_remote(shown) else str(self.base / shown)


def examine(places: Sequence[Place], store: Store, *, system: str, say: Say) -> Scanned:
    """Look at checkpoints anew, and record nothing."""
    return judge_index(scan(places, None, say), store.read(), store, system)


def list_contents(scanned: Scanned, store: Store) -> dict[str, Contents | str]:
    """Return what each checkpoint holds, by its path, or the sentence on why that cannot be told."""
    from torchenv.checkpoints.contents import read_contents

    paths = Paths.of(store)
    found: dict[str, Contents | str] = {}
    for part in (part for run in scanned.runs for save in run.saves for part in save.parts):
        address = paths.address(part.path)
        try:
            found[part.path] = read_contents(place(address).tree(address))
        except (TorchenvError, OSError) as error:
            found[part.path] = str(error)
    return found


def read_recorded(store: Store, *, system: str) -> Scanned:
    """Return what the last scan found; raises `NothingSuits` where there was none."""
    with no_garbage_collection():
        index = read_index(store)
    if index is None:
        hint = "make one with `torchenv checkpoints scan`"
        raise NothingSuits(f"no index of checkpoints in {store.root}", hint=hint)
    return judge_index(index, store.read(), store, system)


def scan_and_record(
    places: Sequence[Place], store: Store, *, whole: bool, system: str, say: Say
) -> tuple[Scanned, tuple[Run, ...]]:
    """Look at what has changed, and record the runs in the manifest and all of it in the index.

    `whole` says that these are all the roots there are; else what was found below others stays.
    """
    with no_garbage_collection():
        return _scan_and_record(places, store, whole=whole, system=system, say=say)


def _scan_and_record(
    places: Sequence[Place], store: Store, *, whole: bool, system: str, say: Say
) -> tuple[Scanned, tuple[Run, ...]]:
    before = read_index(store)
    index = before.without_roots() if before else ScanIndex()
    try:
        scan_into(index, places, before, say, workers=os.cpu_count() or 1)
    except KeyboardInterrupt:
        # The next scan goes on where this one was stopped: what it saw is not read again.
        seen = before.roots if before else {}
        index.roots = {
            root: {**seen.get(root, {}), **index.roots.get(root, {})}
            for root in seen.keys() | index.roots.keys()
        }
        record_index(index, before, store, system=system, say=say)
        say(f"stopped after {index.read} folders were read: the next scan goes on from there")
        raise
    if before is not None and not whole:
        index.roots = {**before.roots, **index.roots}
    return record_index(index, before, store, system=system, say=say)


def record_index(
    index: ScanIndex, before: ScanIndex | None, store: Store, *, system: str, say: Say
) -> tuple[Scanned, tuple[Run, ...]]:
    """Record what a scan found and who reads it; where all is as `before`, nobody is waited for."""
    is_new = before is None or before.roots != index.roots
    manifest = store.read()
    scanned = judge_index(index, manifest, store, system)
    lines = run_lines(scanned.runs, scanned.judge)
    if not is_new and _with_lines(manifest, lines, scanned, lambda _: None) == manifest:
        return scanned, lines
    with store.hold("torchenv checkpoints scan"):
        manifest = store.read()
        scanned = judge_index(index, manifest, store, system)
        lines = run_lines(scanned.runs, scanned.judge)
        if is_new:
            store.write_index(index.to_json())
        after = _with_lines(manifest, lines, scanned, say)
        if after != manifest:
            store.write(after)
    return scanned, lines


def _with_lines(manifest: Manifest, lines: Iterable[Run], scanned: Scanned, say: Say) -> Manifest:
    recorded = manifest.record_runs(_recordable(lines, say))
    return replace(recorded, kept=_judge_again(manifest.kept, scanned))


def judge_for(new: Environment, manifest: Manifest, store: Store, *, system: str, say: Say) -> Manifest:
    """Describe what the last scan saw who reads it now that an environment has come; looks at no checkpoint.

    A run that the index does not hold, and every one where there is no index, is unjudged for it.
    """
    if not manifest.runs and not manifest.kept:
        return manifest
    with no_garbage_collection():
        index = read_index(store)
        scanned = judge_index(index, manifest, store, system) if index is not None else None
        seen = {run.path: run for run in scanned.runs} if scanned is not None else {}
        runs = [
            run_line(seen[line.path], scanned.judge)
            if scanned is not None and line.path in seen
            else replace(line, unjudged_for=tuple(dict.fromkeys((*line.unjudged_for, new.number))))
            for line in manifest.runs
        ]
        kept = _judge_again(manifest.kept, scanned) if scanned is not None else manifest.kept
    return replace(manifest.record_runs(_recordable(runs, say)), kept=kept)


def _recordable(lines: Iterable[Run], say: Say) -> Iterator[Run]:
    """Leave out the runs that the manifest cannot name: TOML takes only text, a file system any bytes."""
    for line in lines:
        names = (line.path, line.newest or "", *line.newest_readable.values(), *line.broken, *line.writing)
        try:
            "".join(names).encode()
        except UnicodeEncodeError:
            say(f"{line.path!a} has names that are not valid UTF-8: this run is not recorded")
        else:
            yield line


def read_index(store: Store) -> ScanIndex | None:
    """Return the index, or None where there is none that this torchenv wrote."""
    try:
        return ScanIndex.from_json(store.index_path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def roots_of(named: Sequence[str], known: Sequence[str], cwd: Path) -> tuple[str, ...]:
    """Return the addresses to scan: those named, else those known; raises `InputError` for none."""
    if named:
        return tuple(address_of(text, cwd) for text in named)
    if not known:
        hint = 'name one, or add roots = ["runs"] under [checkpoints] in torchenv.toml'
        raise InputError("no directory named to scan for checkpoints", hint=hint)
    return tuple(known)


def address_of(text: str, beside: Path) -> str:
    """Return the address of what a person names by a path or an address."""
    if is_remote(text):
        return text.rstrip("/")
    return str(resolve_parents(beside / Path(text.removeprefix("file://")).expanduser()))


def judge_index(index: ScanIndex, manifest: Manifest, store: Store, system: str) -> Scanned:
    """Return what an index holds, with who reads it of the environments that a manifest has."""
    paths = Paths.of(store)
    note_copies(index, manifest, store)
    return Scanned(
        roots=tuple(map(paths.display, index.roots)),
        index=index,
        runs=tuple(runs_of(index, paths.display)),
        judge=Judge(index, manifest.environments, system, partial(find_package, store)),
        kept=frozenset(item.path for item in manifest.kept),
    )


def note_copies(index: ScanIndex, manifest: Manifest, store: Store) -> None:
    """Let an index know which of its checkpoints torchenv made itself, of saves that are still there."""
    paths = Paths.of(store)
    kept = {paths.address(kept.copy): "kept" for kept in manifest.kept if kept.copy}
    index.copies = {**kept, **store.read_copies()}


def find_package(store: Store, environment: Environment, name: str) -> str | None:
    """Return the version of a package by its record; "" where an environment has none, None: unknown."""
    match store.locate(environment):
        case InPlace(top) | Moved(top):
            pass
        case _:
            return None
    folders = [*find_paths(top, "lib/python*/site-packages"), *find_paths(top, "Lib/site-packages")]
    records = [record for folder in folders for record in find_paths(folder, f"{name}-*.dist-info")]
    versions = {record.name.removesuffix(".dist-info").partition("-")[2] for record in records}
    if versions:
        return versions.pop() if len(versions) == 1 else None
    # It may be there without a record, or in what the environment sees of its base.
    elsewhere = any(find_paths(folder, f"{name}*") for folder in folders) or any(
        _leads_elsewhere(path) for folder in folders for path in find_paths(folder, "*.pth")
    )
    recorded = any(find_paths(folder, "*.dist-info") for folder in folders)
    return None if elsewhere or not recorded or _sees_base(top) else ""


def _leads_elsewhere(path: Path) -> bool:
    """Whether a .pth file names a directory; most of them only run a line of code."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return True
    return any(line.strip() and not line.startswith(("import ", "import\t", "#")) for line in lines)


def _sees_base(top: Path) -> bool:
    try:
        text = (top / "pyvenv.cfg").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return True
    lines = {"".join(line.lower().split()) for line in text.splitlines()}
    return "include-system-site-packages=false" not in lines


def _judge_again(kept: Iterable[Kept], scanned: Scanned) -> tuple[Kept, ...]:
    """Return the lifeboats with who reads them now: environments came since they were kept."""
    found = {part.path: part.found for run in scanned.runs for save in run.saves for part in save.parts}
    judge = scanned.judge

    def judge_one(kept: Kept) -> Kept:
        if kept.path not in found:
            return kept
        return replace(kept, readable_by=readers(found[kept.path], judge, kept.readable_by))

    return tuple(map(judge_one, kept))


def readers(found: Found, judge: Judge, before: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the numbers of the environments that read a checkpoint, those not on disk as they were."""
    on_disk = {environment.number for environment in judge.environments}
    now = {environment.number for environment in judge.environments if judge.of(found, environment) in READS}
    return tuple(sorted(now | {number for number in before if number not in on_disk}))
