"""Have the torch of an environment read a save: to prove a copy of it, or to write it in another form."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from torchenv.actions.downgrade import Copied, DowngradeTarget, find_parts
from torchenv.actions.lifeboat import Hashed, hash_files
from torchenv.actions.run import directory_of
from torchenv.checkpoints.formats import safetensors
from torchenv.checkpoints.values import Checkpoint, describe_state, some
from torchenv.environment.inspect import describe
from torchenv.errors import InputError, NothingSuits, ToolFailed
from torchenv.storage import is_remote, place
from torchenv.storage.carry import describe_size
from torchenv.storage.tree import LocalTree
from torchenv.system.disk import Disk, suggest
from torchenv.system.process import Command, Runner
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store

SCRIPT = Path(__file__).parent.parent / "guest" / "read_save.py"

SaveForm = Literal["safetensors", "torch-save"]
_SUFFIXES: Mapping[str, str] = {"safetensors": ".safetensors", "torch-save": ".pt"}
_BLOCK = 8 << 20


@frozen
class TensorDigest:
    """One tensor as a torch has loaded it."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@frozen(kw_only=True)
class SaveDigest:
    """All tensors of a save as the torch of an environment has loaded them."""

    torch: str
    tensors: Mapping[str, TensorDigest]
    objects: tuple[str, ...]


@frozen(kw_only=True)
class CopyProof:
    """What two releases of torch loaded from a save and its copy; `differences` name what is not equal."""

    copy: str
    original_torch: str
    copy_torch: str
    tensors: int
    differences: tuple[str, ...]


@frozen(kw_only=True)
class Converted:
    """A save in its other form; `left_out` are objects that safetensors cannot hold."""

    source: str
    target: str
    form: SaveForm
    torch: str
    tensors: int
    bytes: int
    left_out: tuple[str, ...]


def prove_copy(
    copied: Copied, before: Mapping[str, Hashed], target: DowngradeTarget, store: Store, run: Runner
) -> CopyProof:
    """Load a save and its copy each in an environment that reads it, and compare every tensor bit for bit.

    `before` are the hashes of the original's files from before the copy was made. Raises `NothingSuits` where
    no environment here reads one of them, `ToolFailed` where a torch refuses what it is said to read.
    """
    if is_remote(copied.source) or is_remote(copied.copy):
        raise NothingSuits("only copies on this machine can be proved", hint="leave out --prove")
    manifest = store.read()
    differences: list[str] = []
    tensors, releases = 0, ("", "")
    for original in _require_distributed(find_parts(place(copied.source))):
        below = original.path.removeprefix(copied.source)
        ours = digest_save(find_reader(original, manifest, target.system), store, original.path, run)
        theirs = digest_save(_find_target(target, manifest), store, f"{copied.copy}{below}", run)
        tensors += len(ours.tensors)
        releases = (ours.torch, theirs.torch)
        differences += _compare(ours.tensors, theirs.tensors)
    after = hash_files(place(copied.source), lambda *_: None)
    differences += [
        f"the original's {name} changed"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    return CopyProof(
        copy=copied.copy,
        original_torch=releases[0],
        copy_torch=releases[1],
        tensors=tensors,
        differences=tuple(differences),
    )


def convert(
    source: str,
    form: SaveForm,
    store: Store,
    *,
    target: str | None = None,
    environment: Environment | None = None,
    system: str,
    run: Runner,
) -> Converted:
    """Write a save in another form with the torch of an environment, and verify it tensor by tensor.

    Raises `InputError` where the goal is taken, `NothingSuits` where no environment reads the save.
    """
    if is_remote(source) or (target and is_remote(target)):
        raise NothingSuits("only a save on this machine can be converted", hint="copy it here first")
    parts = find_parts(place(source))
    if len(parts) != 1:
        named = ", ".join(part.path for part in parts[:5])
        raise InputError(f"`{source}` holds {len(parts)} checkpoints", hint=f"convert each: {named}")
    (part,) = parts
    refuse_foreign(part)
    _refuse_form(part, form)
    reader = environment or find_reader(part, store.read(), system)
    if reader.torch is not None and part.reader.needs_code(reader.torch):
        # Loading it so would run whatever it holds.
        hint = f"see what torch.load needs for it with `torchenv checkpoints show {shlex.quote(part.path)}`"
        raise NothingSuits(f"environment {reader} reads `{part.path}` only with code of its own", hint=hint)
    goal = Path(
        target
        or f"{source.removesuffix(Path(source).suffix) if _is_file(source) else source}{_SUFFIXES[form]}"
    )
    if os.path.lexists(goal):
        raise _refuse_taken(goal, source, form)
    disk = Disk()
    with suggest(_ELSEWHERE):
        disk.make_directory(goal.parent)
    free = disk.free_space(goal.parent)
    if part.bytes > free:
        raise ToolFailed(f"`{goal}` needs {describe_size(part.bytes)}, and {describe_size(free)} are free")
    # Two may write to one place at once: each has a draft of its own, and the first to finish gets the name.
    with (
        suggest(_ELSEWHERE),
        disk.hold_draft(goal) as draft,
    ):
        loaded = digest_save(reader, store, part.path, run, form=form, target=draft)
        written = (
            _read_back(draft)
            if form == "safetensors"
            else digest_save(reader, store, str(draft), run).tensors
        )
        if wrong := _compare(loaded.tensors, written):
            raise ToolFailed(f"`{goal}` does not hold what was written to it: {some(wrong)}")
        size = draft.stat().st_size
        if not disk.publish(draft, goal):
            raise _refuse_taken(goal, source, form)
    return Converted(
        source=source,
        target=str(goal),
        form=form,
        torch=loaded.torch,
        tensors=len(loaded.tensors),
        bytes=size,
        left_out=loaded.objects if form == "safetensors" else (),
    )


_ELSEWHERE = "name a place for the copy in another directory"


def _refuse_form(part: Checkpoint, form: SaveForm) -> None:
    """Raise for a save that has the form already, or one that holds a program and no state."""
    if part.format in {"torchscript", "pt2", "unknown"}:
        raise NothingSuits(f"`{part.path}` is {part.format}, not a save of tensors")
    is_one_file = os.path.isfile(part.path)
    if form == "torch-save" and part.format in {"torch-zip", "torch-legacy"}:
        raise InputError(f"`{part.path}` is a file of torch.save already", hint="use `--to safetensors`")
    if form == "safetensors" and part.format == "safetensors" and is_one_file:
        raise InputError(f"`{part.path}` is a safetensors file already", hint="use `--to torch-save`")


def _refuse_taken(goal: Path, source: str, form: SaveForm) -> InputError:
    what = "already exists" if os.path.exists(goal) else "is a broken link"
    other = goal.with_name(f"{goal.stem}-2{goal.suffix}")
    command = shlex.join(["torchenv", "checkpoints", "convert", source, str(other), "--to", form])
    return InputError(f"`{goal}` {what}", hint=f"name another place: `{command}`")


def digest_save(
    environment: Environment,
    store: Store,
    path: str,
    run: Runner,
    *,
    form: SaveForm | None = None,
    target: Path | None = None,
) -> SaveDigest:
    """Load a save in an environment, tensor by tensor, and with a `form` write it to `target`.

    Raises `ToolFailed` where its torch refuses.
    """
    python = describe(directory_of(environment, store)).interpreter
    if python is None:
        raise NothingSuits(f"environment {environment} has no Python to load `{path}` with")
    words = [str(python), "-I", "-B", str(SCRIPT), form or "digest", path, *([str(target)] if target else [])]
    completed = run(Command(tuple(words)))
    out = completed.check(f"load `{path}` in environment {environment}")
    try:
        answer = json.loads(out.strip().splitlines()[-1])
        tensors = {
            name: TensorDigest(dtype, tuple(shape), sha256)
            for name, (dtype, shape, sha256) in answer["tensors"].items()
        }
        return SaveDigest(torch=answer["torch"], tensors=tensors, objects=tuple(answer["objects"]))
    except (IndexError, KeyError, ValueError):
        hint = f"run it: {completed.command}"
        raise ToolFailed(f"environment {environment} returned no digest of `{path}`", hint=hint) from None


def _require_distributed(parts: Sequence[Checkpoint]) -> Iterator[Checkpoint]:
    for part in parts:
        if part.format == "dcp":
            refuse_foreign(part)
            yield part


def refuse_foreign(part: Checkpoint) -> None:
    """Raise `NothingSuits` for what no torch should load: names that could run code, or what is not whole."""
    # torch itself would run what the metadata name.
    if part.foreign:
        raise NothingSuits(f"{part.path} is not loaded: it names {some(part.foreign)}, which could run code")
    if part.state != "complete":
        said = "; ".join(note.message for note in part.problems)
        raise NothingSuits(f"{part.path} is {describe_state(part.state)}: {said}")


def find_reader(part: Checkpoint, manifest: Manifest, system: str | None) -> Environment:
    """Return an environment here that reads a checkpoint, the active one first."""
    there = [
        environment for environment in manifest.environments if environment.on_disk and environment.torch
    ]
    there.sort(key=lambda environment: environment.number != manifest.current)
    for environment in there:
        if part.reader.reads(environment.torch or "", environment.python.version, system):
            return environment
    oldest = part.reader.torch.oldest
    hint = f"make one with `torchenv create {oldest}`" if oldest else None
    raise NothingSuits(f"no environment here reads {part.path}", hint=hint)


def _find_target(target: DowngradeTarget, manifest: Manifest) -> Environment:
    for environment in manifest.environments:
        if environment.on_disk and environment.torch and target.is_of(environment.torch):
            return environment
    hint = f"make one with `torchenv create {target.torch}`"
    raise NothingSuits(f"no environment here has torch {target.torch} to prove the copy with", hint=hint)


def _compare(ours: Mapping[str, TensorDigest], theirs: Mapping[str, TensorDigest]) -> list[str]:
    return [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]


def _read_back(path: Path) -> dict[str, TensorDigest]:
    """Digest what a safetensors file holds, by its own header and without any torch."""
    file = safetensors.read_file(LocalTree(path), path.name, path.stat().st_size)
    digests = {}
    with path.open("rb") as data:
        for name, (start, end) in file.spans.items():
            data.seek(file.start + start)
            digest, left = hashlib.sha256(), end - start
            while left and (block := data.read(min(left, _BLOCK))):
                digest.update(block)
                left -= len(block)
            dtype = safetensors.DTYPES.get(file.dtypes[name], file.dtypes[name])
            digests[name] = TensorDigest(dtype, file.tensors[name], digest.hexdigest())
    return digests


def _is_file(path: str) -> bool:
    return os.path.isfile(Path(path))
