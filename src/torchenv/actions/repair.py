"""Make a copy of a save that holds what newer releases of torch ask for; the original is never changed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Literal

from torchenv.actions.downgrade import find_parts, write_copy
from torchenv.actions.pointers import CopyPointer, point_to_copy
from torchenv.actions.read_save import digest_save, find_reader, refuse_foreign
from torchenv.actions.run import directory_of
from torchenv.checkpoints.downgrade import Downgraded
from torchenv.checkpoints.downgrade import downgrade as rewrite
from torchenv.checkpoints.formats.dcp import GLOBAL
from torchenv.checkpoints.values import CheckpointNote
from torchenv.environment.inspect import describe
from torchenv.errors import InputError, NothingSuits, ToolFailed
from torchenv.storage import Progress, Transfer, is_remote, place
from torchenv.system.process import Command, Runner
from torchenv.system.scratch import make_scratch
from torchenv.system.values import frozen
from torchenv.workspace.store import Store

SCRIPT = Path(__file__).parent.parent / "guest" / "repair_save.py"
ADDED_FILE = "__repair_0.distcp"

Optimizer = Literal["adam", "adamw"]

# Older releases than these lack the key, and the form of their metadata is what both sides read.
_FORM = "2.14"


@frozen(kw_only=True)
class Repaired:
    """A copy with what was added to it, by name."""

    source: str
    copy: str
    added: tuple[str, ...]
    torch: str
    carried: frozenset[Transfer]
    pointers: tuple[CopyPointer, ...] = ()


def repair(
    source: str,
    optimizer: Optimizer,
    store: Store,
    *,
    to: str | None = None,
    system: str,
    run: Runner,
    progress: Progress,
) -> Repaired:
    """Add `decoupled_weight_decay` to the Adam groups of a save from before torch 2.7, in a copy of it.

    AdamW decouples its weight decay and Adam does not, which the save does not tell: `optimizer` does.
    Raises `NothingSuits` where nothing is missing, or no environment here reads the save.
    """
    if is_remote(source) or (to and is_remote(to)):
        raise NothingSuits("only a save on this machine can be repaired", hint="copy it here first")
    there = place(source)
    parts = [part for part in find_parts(there) if _lacks_key(part.reader.because)]
    if not parts:
        raise NothingSuits(f"`{source}` lacks nothing that newer releases of torch ask for")
    run_directory, name = Path(source).parent, Path(source).name
    aim = to or str(run_directory.with_name(f"{run_directory.name}-repaired") / name)
    goal = place(aim)
    if goal.exists():
        words = ["torchenv", "checkpoints", "repair", source, f"{aim}-2", "--optimizer", optimizer]
        raise InputError(f"`{aim}` already exists", hint=f"name another place: `{shlex.join(words)}`")
    manifest = store.read()
    rewritten: dict[str, Downgraded] = {}
    added: list[str] = []
    for part in parts:
        refuse_foreign(part)
        environment = find_reader(part, manifest, system)
        python = describe(directory_of(environment, store)).interpreter
        below = part.path.removeprefix(source).lstrip("/\\").replace("\\", "/")
        with make_scratch() as scratch:
            value = "true" if optimizer == "adamw" else "false"
            command = Command((str(python), "-I", "-B", str(SCRIPT), part.path, str(scratch), value))
            out = run(command).check(f"repair `{part.path}` in environment {environment}")
            added += json.loads(out.strip().splitlines()[-1])
            metadata = rewrite((scratch / GLOBAL).read_bytes(), _FORM, portable_path=True)
            values = Downgraded(data=(scratch / ADDED_FILE).read_bytes(), strides=0, paths=0)
        prefix = f"{below}/" if below else ""
        rewritten |= {f"{prefix}{GLOBAL}": metadata, f"{prefix}{ADDED_FILE}": values}
    carried = write_copy(there, goal, there.files(), rewritten, link=False, progress=progress)
    for part in parts:
        environment = find_reader(part, manifest, system)
        before = digest_save(environment, store, part.path, run)
        after = digest_save(environment, store, f"{aim}{part.path.removeprefix(source)}", run)
        lacking = {*before.objects, *added} - {*after.objects}
        if before.tensors != after.tensors or (len(parts) == 1 and lacking):
            raise ToolFailed(f"the copy `{aim}` does not hold what its original holds")
    return Repaired(
        source=source,
        copy=aim,
        added=tuple(added),
        torch=after.torch,
        carried=carried,
        pointers=() if to else point_to_copy(source, aim),
    )


def _lacks_key(because: tuple[CheckpointNote, ...]) -> bool:
    return any(note.code == "optimizer-keys" for note in because)
