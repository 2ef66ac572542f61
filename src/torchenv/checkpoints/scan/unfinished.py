"""Finds the saves that are being written, or that their own writers call unfinished."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchenv.checkpoints.layouts import Gap, layouts
from torchenv.checkpoints.steps import original_of, step_of
from torchenv.checkpoints.values import CheckpointNote, State, escape_name
from torchenv.storage import Folder, is_remote
from torchenv.storage.names import is_part
from torchenv.system.looking import is_shared
from torchenv.system.processes import Process, list_writers

if TYPE_CHECKING:
    from torchenv.checkpoints.scan.index import ScanIndex, ScannedFolder
    from torchenv.checkpoints.scan.runs import Save

_SECOND = 1_000_000_000  # nanoseconds
# A save whose files changed within this time may be finished in the next moment.
_FRESH = 60 * _SECOND
# A large save may stand still for long between two writes.
_RECENT = 3600 * _SECOND

FindWriters = Callable[[], Mapping[str, Process] | None]


def mark_unfinished(runs: Mapping[str, Mapping[str, Save]], index: ScanIndex) -> None:
    """Make each save incomplete that lacks a part of its layout, or that its writer calls unfinished."""
    known = layouts()
    roots = [*index.roots.values(), index.beside]
    is_unfinished = known.unfinished.fullmatch
    lacking: dict[tuple[str, ...], tuple[Gap, ...]] = {}
    for run, saves in runs.items():
        folder = _find_folder(roots, run)
        if folder is not None:
            _mark_by_words(saves, folder)
        for save in saves.values():
            if is_unfinished(save.name):
                said = f"by its name it is not finished: {escape_name(save.name)}"
                _mark(save, CheckpointNote("unfinished", said))
            first = save.parts[0]
            if len(save.parts) == 1 and not first.found.name and first.path == save.path:
                # One folder, as most of thousands are: nothing is to be looked for.
                names = tuple(first.seen.folder.files)
            else:
                names = _list_names(save, _find_folder(roots, save.address))
            gaps = lacking.get(names)
            if gaps is None:
                gaps = lacking[names] = known.find_gaps(names)
            for gap in gaps:
                if gap.saves is None or gap.saves.fullmatch(original_of(save.name)):
                    _mark(save, gap.note)


def mark_being_written(
    runs: Mapping[str, Mapping[str, Save]],
    now_ns: int | None = None,
    find_writers: FindWriters = list_writers,
) -> None:
    """Mark the saves that are being written now: by the files that are open, where that can be seen.

    Else what is unfinished by its own names, and was changed a moment ago, is taken to be.
    """
    now = time.time_ns() if now_ns is None else now_ns
    recent: dict[str, Save] = {}
    for run, saves in runs.items():
        if is_remote(run):  # an object is there once it is whole
            continue
        for save in saves.values():
            settled = all(0 < part.seen.folder.changed < now - _RECENT for part in save.parts)
            if settled and save.complete:
                continue
            age = now - save.modification_ns
            if age < (_FRESH if save.complete else _RECENT):
                recent[os.path.realpath(save.address)] = save
    if not recent:
        return
    writers = find_writers()
    for path, process in (writers or {}).items():
        folder, _, name = path.rpartition(os.sep)
        written = recent.get(path) or (_find_above(folder, recent) if is_part(name) else None)
        if written is not None:
            said = f"{escape_name(str(process))} is writing {escape_name(name)}"
            _mark(written, CheckpointNote("writing", said), "writing")
    for path, save in recent.items():
        age = now - save.modification_ns
        if save.complete or age >= _FRESH or save.being_written:
            continue
        if _is_temporary(save) or not _sees_writers(path, writers):
            said = f"its files changed {max(age, 0) // _SECOND} s ago: it may still be being written"
            _mark(save, CheckpointNote("writing", said), "writing")


def _find_above(folder: str, saves: Mapping[str, Save]) -> Save | None:
    while folder:
        if (save := saves.get(folder)) is not None:
            return save
        folder = folder.rpartition(os.sep)[0]
    return None


def _is_temporary(save: Save) -> bool:
    """Whether a save is unfinished by the name of a file or by its own: model.pt.tmp, .metadata.tmp."""
    codes = {code for part in save.parts for code, _ in part.found.problems}
    return "unfinished" in codes or any(".metadata.tmp" in part.seen.folder.files for part in save.parts)


def _sees_writers(path: str, writers: Mapping[str, Process] | None) -> bool:
    """Whether one who writes a file would be seen: neither another user nor another machine."""
    if writers is None:
        return False
    try:
        return os.geteuid() in (0, Path(path).stat().st_uid) and not is_shared(path)
    except OSError:
        return True  # it is gone


def _find_folder(roots: Sequence[Mapping[str, ScannedFolder]], address: str) -> ScannedFolder | None:
    return next((found for seen in roots if (found := seen.get(address)) is not None), None)


def _list_names(save: Save, own: ScannedFolder | None) -> tuple[str, ...]:
    """Return the names of a save's files as its layout tells them: weights/.metadata."""
    if own is None and all(part.path == save.path for part in save.parts):  # one file
        return ()
    names = dict.fromkeys(own.folder.files if own is not None else ())
    for part in save.parts:
        if part.seen is own:
            continue
        below = part.path.removeprefix(save.path).replace("\\", "/").strip("/")
        if part.found.name:
            below = below.rpartition("/")[0]
        names.update(dict.fromkeys(f"{below}/{name}" for name in part.seen.folder.files))
    return tuple(names)


def _mark_by_words(saves: Mapping[str, Save], folder: ScannedFolder) -> None:
    """Mark the saves that a file beside them calls unfinished, or that a pointer does not name yet."""
    markers = layouts().markers
    for name in folder.folder.files:
        for marker in markers:
            if name.endswith(marker) and (save := saves.get(name.removesuffix(marker))) is not None:
                _mark(
                    save, CheckpointNote("unfinished", f"{escape_name(name)} is there until it is finished")
                )
    for pointer, content in folder.pointers.items():
        written = folder.folder.files[pointer][1]
        for save in _list_newer(saves, folder.folder, content):
            # A pointer that is younger than the save was set by someone who knew of it.
            if written <= save.modification_ns:
                said = (
                    f"{pointer} names {escape_name(content)}, and its writer names a save once it is finished"
                )
                _mark(save, CheckpointNote("not-pointed-at", said))


def _list_newer(saves: Mapping[str, Save], folder: Folder, content: str) -> Iterator[Save]:
    """Yield the saves of later steps than the one that a pointer names; none where that one is not there."""
    step = int(content) if content.isdecimal() and len(content) < 20 else step_of(content)
    if step is None:
        return
    # Of a save that was named by itself, the others are only listed.
    names = (*folder.folders, *folder.links, *folder.files)
    if all(save.step != step for save in saves.values()) and all(step_of(name) != step for name in names):
        return
    for save in saves.values():
        if save.step is not None and save.step > step:
            yield save


def _mark(save: Save, note: CheckpointNote, state: State = "incomplete") -> None:
    """Set the state of a part and its reason: one that is complete, or a broken one that is being written."""
    wanted = state != "writing"
    at = next((number for number, part in enumerate(save.parts) if part.complete == wanted), 0)
    part = save.parts[at]
    problem = [note.code, note.message]
    if problem in part.found.problems:
        return
    if state == "incomplete" and not part.complete:
        state = part.found.state
    found = part.found._replace(state=state, problems=[*part.found.problems, problem])
    save.parts[at] = part._replace(found=found)
