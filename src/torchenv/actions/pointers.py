"""The small files by which a framework finds the newest save of a run, written for a directory of copies."""

from __future__ import annotations

import os
from pathlib import Path

from torchenv.checkpoints.steps import step_of
from torchenv.errors import WorkspaceError
from torchenv.storage import is_remote
from torchenv.system.disk import Disk
from torchenv.system.values import frozen

# The file, and who reads it: DeepSpeed `global_step100`, Megatron-LM `100` or `release`, detectron2
# `model_0000100.pth`, TensorFlow-like loops and Megatron's dist-ckpt `100`.
POINTERS = ("latest", "latest_checkpointed_iteration.txt", "last_checkpoint", "latest_checkpoint.txt")

_LONGEST = 4096  # bytes; one with more is none


@frozen
class CopyPointer:
    """A pointer file beside a copy: written, or left as it was."""

    path: str
    content: str
    written: bool


def point_to_copy(source: str, aim: str) -> tuple[CopyPointer, ...]:
    """Write beside a copy each pointer file that is beside its original, in the same form.

    One that points to something else than a save is not taken for a pointer. Only on this machine. One
    that is beside the copy already is replaced only where it names an older save, or one that is gone.
    """
    if is_remote(source) or is_remote(aim):
        return ()
    pointers = []
    for name in POINTERS:
        content = _read(Path(source).parent / name)
        if content is None:
            continue
        copy = Path(aim)
        step = step_of(copy.name)
        if content.strip().isdecimal() and step is not None:
            text = f"{step}{_end(content)}"
        elif os.path.exists(Path(source).parent / content.strip()):
            text = f"{copy.name}{_end(content)}"
        else:
            continue
        path = copy.parent / name
        before = _read(path)
        if before is not None and before.strip() == text.strip():
            continue
        written = not os.path.lexists(path) or (
            before is not None and _is_outdated(path.parent, before, step)
        )
        try:
            if written:
                Disk().put(path, text)
        except WorkspaceError as error:
            raise OSError(error.message) from error
        pointers.append(CopyPointer(str(path), (text if written else before or "").strip(), written))
    return tuple(pointers)


def _is_outdated(run: Path, content: str, step: int | None) -> bool:
    """Whether a pointer names a save of an earlier step than this, or one that is gone; no where in doubt."""
    named = content.strip()
    before = step_of(named)
    if before is None or step is None:
        return False
    if before < step:
        return True
    try:
        if named.isdecimal():
            return all(step_of(path.name) != before for path in run.iterdir())
        return not os.path.lexists(run / named)
    except OSError:
        return False


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_size > _LONGEST or path.is_symlink() or not os.path.isfile(path):
            return None
        return path.read_text(encoding="utf-8") or None
    except (OSError, UnicodeDecodeError):
        return None


def _end(content: str) -> str:
    # DeepSpeed and Megatron write none, and compare what they read.
    return "\n" if content.endswith("\n") else ""
