"""The audit of files and folders: find them, read them on every core, gather what was found."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchenv.audit import (
    RULES,
    AuditReport,
    FileKind,
    Finding,
    Rule,
    Unread,
    audit_content,
    audit_native,
    kind_of,
)
from torchenv.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchenv.audit import Breakages

# Folders that hold no code of the user's own; hidden ones are left out too, but for these.
_PASSED_OVER = frozenset({"__pycache__", "node_modules"})
_HIDDEN = frozenset({".github", ".circleci", ".devcontainer"})
# Starting processes costs about as much as auditing this many files in one.
_FEW = 400
_BATCH = 200

Outcome = tuple[tuple[Finding, ...], tuple[Unread, ...]]


def audit(
    paths: Sequence[Path],
    breakages: Sequence[Breakages],
    *,
    workers: int | None = None,
    rules: Sequence[Rule] = RULES,
) -> AuditReport:
    """Audit files, and folders with all that is below them; nothing of theirs is run.

    Virtual environments inside a folder are passed over; one that is named is not. `workers` is
    the number of processes, by default one for each core; `breakages` begins with the release that is
    audited for. Raises `InputError` where a path does
    not exist.
    """
    named = frozenset(path for path in paths if os.path.isfile(path))
    files = list(dict.fromkeys(file for path in paths for file in _files(path)))
    batches = [files[n : n + _BATCH] for n in range(0, len(files), _BATCH)]
    workers = min(workers or os.cpu_count() or 1, len(batches))
    if workers < 2 or len(files) <= _FEW:
        outcomes = [audit_files(batch, breakages, rules, named) for batch in batches]
    else:
        outcomes = list(_on_every_core(batches, breakages, rules, named, workers))
    unread = tuple(skipped for _, skipped_here in outcomes for skipped in skipped_here)
    return AuditReport(
        release=str(breakages[0].version),
        files=len(files) - len(unread),
        findings=tuple(found_item for found, _ in outcomes for found_item in found),
        unread=unread,
    )


def audit_files(
    files: Sequence[tuple[Path, FileKind]],
    breakages: Sequence[Breakages],
    rules: Sequence[Rule],
    named: frozenset[Path] = frozenset(),
) -> Outcome:
    """Audit some files, one after the other; those that were `named` are parsed whatever they hold."""
    findings: list[Finding] = []
    unread: list[Unread] = []
    for path, kind in files:
        result = _audit_file(path, kind, breakages, rules, is_named=path in named)
        if isinstance(result, Unread):
            unread.append(replace(result, is_named=path in named))
        else:
            findings += result
    return tuple(findings), tuple(unread)


def _audit_file(
    path: Path, kind: FileKind, breakages: Sequence[Breakages], rules: Sequence[Rule], *, is_named: bool
) -> tuple[Finding, ...] | Unread:
    name = path.as_posix()
    try:
        with path.open("rb") as stream:
            if kind is FileKind.NATIVE:
                return audit_native(name, stream, breakages, rules)
            return audit_content(name, kind, stream.read(), breakages, rules, is_named=is_named)
    except OSError as error:
        return Unread(name, error.strerror or str(error))


def _on_every_core(
    batches: Sequence[Sequence[tuple[Path, FileKind]]],
    breakages: Sequence[Breakages],
    rules: Sequence[Rule],
    named: frozenset[Path],
    workers: int,
) -> Iterator[Outcome]:
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    from multiprocessing import get_context

    # A spawned process inherits no thread and no lock, on every system alike. Trees hold no cycles:
    # the collector would only look through them again and again.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=gc.disable) as pool:
        names = frozenset(rule.name for rule in rules)
        audit_one = partial(_audit_batch, breakages=breakages, names=names, named=named)
        yield from pool.map(audit_one, batches)


def _audit_batch(
    files: Sequence[tuple[Path, FileKind]],
    breakages: Sequence[Breakages],
    names: frozenset[str],
    named: frozenset[Path],
) -> Outcome:
    # Rules hold functions, which do not travel between processes; their names do.
    return audit_files(files, breakages, [rule for rule in RULES if rule.name in names], named)


def _files(path: Path) -> Iterator[tuple[Path, FileKind]]:
    if os.path.isdir(path):
        yield from _below(path)
    elif os.path.isfile(path):
        kind = kind_of(path.as_posix())
        if kind is None:
            raise InputError(
                f"`{path}` is not a kind of file that the audit reads",
                hint="name a Python, notebook, project, CI, script, build or library file",
            )
        yield path, kind
    else:
        raise InputError(f"`{path}` does not exist")


def _below(folder: Path) -> Iterator[tuple[Path, FileKind]]:
    """Yield the files below a folder that rules read, in the order of their names."""
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in listed:
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        elif (kind := kind_of(entry.path.replace(os.sep, "/"))) and _is_file(entry):
            yield Path(entry.path), kind
    for name in folders:
        below = folder / name
        hidden = name.startswith(".") and name not in _HIDDEN
        if hidden or name in _PASSED_OVER or os.path.exists(below / "pyvenv.cfg"):
            continue
        yield from _below(below)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        # A link that leads to itself leads nowhere.
        return False
