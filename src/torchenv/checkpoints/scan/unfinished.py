"""Finds the saves that their own writers call unfinished, whole as each of their files may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from torchenv.checkpoints.layouts import Gap, layouts
from torchenv.checkpoints.steps import original_of, step_of
from torchenv.checkpoints.values import CheckpointNote, escape_name

if TYPE_CHECKING:
    from torchenv.checkpoints.scan.index import ScanIndex, ScannedFolder
    from torchenv.checkpoints.scan.runs import Save


def mark_unfinished(runs: Mapping[str, Mapping[str, Save]], index: ScanIndex) -> None:
    """Make each save incomplete that lacks a part of its layout, or that its writer calls unfinished."""
    known = layouts()
    roots = list(index.roots.values())
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
        for save in _list_newer(saves, content):
            # A pointer that is younger than the save was set by someone who knew of it.
            if written <= max(part.modification_ns for part in save.parts):
                said = (
                    f"{pointer} names {escape_name(content)}, and its writer names a save once it is finished"
                )
                _mark(save, CheckpointNote("not-pointed-at", said))


def _list_newer(saves: Mapping[str, Save], content: str) -> Iterator[Save]:
    """Yield the saves of later steps than the one that a pointer names; none where that one is not there."""
    step = int(content) if content.isdecimal() and len(content) < 20 else step_of(content)
    if step is None or all(save.step != step for save in saves.values()):
        return
    for save in saves.values():
        if save.step is not None and save.step > step:
            yield save


def _mark(save: Save, note: CheckpointNote) -> None:
    """Make the first part of a save incomplete, with the reason."""
    at = next((number for number, part in enumerate(save.parts) if part.complete), 0)
    part = save.parts[at]
    problem = [note.code, note.message]
    if problem in part.found.problems:
        return
    state = "incomplete" if part.complete else part.found.state
    found = part.found._replace(state=state, problems=[*part.found.problems, problem])
    save.parts[at] = part._replace(found=found)
