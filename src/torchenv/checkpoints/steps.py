"""Where in a training run a save stands, told by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# step-100, global_step100, iter_0000100, checkpoint-500, epoch=3-step=100.ckpt, step200k
_SAID = re.compile(
    r"(?<![a-z])(global[-_]?step|step|iteration|iter|checkpoint|ckpt|epoch)[-_=]?(\d+)([km](?![a-z]))?",
    re.IGNORECASE,
)
_THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000}
# 1000, 1000.pt
_BARE = re.compile(r"(\d+)(\.[a-z]\w*)?")
# model_1000.pt
_LAST = re.compile(r".*[-_](\d+)(\.[a-z]\w*)?")
# step-100-for-2.14, ../a-for-2.14/step-100, ../a-repaired/step-100: a copy is of the step of its original
_COPY = re.compile(r"-(?:for-\d[\d.]*|repaired)$")
_IN_COPIES = re.compile(r"\.\./.*-(?:for-\d[\d.]*|repaired)/.*")


class SavePosition(NamedTuple):
    """Which part of a path names the save, by its index, and the step it tells; None: it tells none."""

    part: int
    step: int | None


def standing(parts: Sequence[str], first: int = 0) -> SavePosition:
    """Find the part of a checkpoint's path that names its save; none before `first` is asked.

    A save may hold several checkpoints, as checkpoint-500/optimizer.pt, so the innermost part that says
    `step`, `checkpoint` or the like counts, and only without one the last part's own number.
    """
    last = len(parts) - 1
    for part in range(last, first - 1, -1):
        if (step := parse_step_words(parts[part])) is not None:
            return SavePosition(find_outer(parts, part, step, first), step)
    for part in range(last, first - 1, -1):
        if match := _BARE.fullmatch(original_of(parts[part])):
            return SavePosition(part, int(match[1]))
    match = _LAST.fullmatch(original_of(parts[last]))
    return SavePosition(last, int(match[1]) if match else None)


def find_outer(parts: Sequence[str], part: int, step: int, first: int = 0) -> int:
    """Return the outermost of the parts next to each other that say a step: checkpoint-9/global_step9."""
    while part > first and parse_step_words(parts[part - 1]) == step:
        part -= 1
    return part


def step_of(name: str) -> int | None:
    """Describe the step by the name of a save alone."""
    return standing([name]).step


def is_copy(name: str) -> bool:
    """Whether a save is by its name a downgraded or repaired copy of another."""
    # Of thousands of names nearly all hold neither.
    if "-for-" not in name and "-repaired" not in name:
        return False
    return bool(_COPY.search(name) or _IN_COPIES.fullmatch(name))


def is_save(name: str) -> bool:
    """Whether a name is by itself that of a save: it says a step in words, or is only its number."""
    return parse_step_words(name) is not None or original_of(name).isdecimal()


def behind(newest: str | None, readable: str | None) -> int | None:
    """Describe how many steps one save lies behind another; None where their names do not tell."""
    if newest is None or readable is None:
        return None
    if original_of(readable.rpartition("/")[2]) == newest:
        return 0
    ahead, back = step_of(newest), step_of(readable)
    return None if ahead is None or back is None else ahead - back


def original_of(name: str) -> str:
    """Return the name of what a copy was made of; that of anything else as it is."""
    return _COPY.sub("", name)


def parse_step_words(name: str) -> int | None:
    """Describe the step that a name says in words, as `step-100` does."""
    found = _SAID.findall(name)
    # Of epoch=3-step=100 it is the step that orders the saves.
    if not found:
        return None
    _, number, unit = max(found, key=lambda match: match[0].lower() != "epoch")
    return int(number) * _THOUSANDS[unit.lower()]
