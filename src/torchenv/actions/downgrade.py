"""Make copies of distributed checkpoints that an older torch reads; the originals are never changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from torchenv.checkpoints.downgrade import Downgraded
from torchenv.checkpoints.formats.dcp import GLOBAL, RANK_LOCAL
from torchenv.checkpoints.formats.inert import Damaged
from torchenv.checkpoints.readability import rules
from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.scan.index import ScanIndex
from torchenv.checkpoints.scan.runs import Save, needs_plain_path, reader_after, runs_of
from torchenv.checkpoints.values import Checkpoint, CheckpointNote, Reader
from torchenv.errors import InputError, NothingSuits, ToolFailed
from torchenv.storage import Draft, Place, Progress, Transfer, is_remote, place
from torchenv.storage.carry import carry
from torchenv.workspace.manifest import Manifest

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DowngradeTarget:
    """Who is to read the copies; a Python that is not known may be any."""

    torch: str
    python: str | None = None
    system: str | None = None

    @classmethod
    def of(cls, text: str, manifest: Manifest, system: str) -> DowngradeTarget:
        """Take a version of torch; where an environment has it, that one's Python counts.

        Raises `InputError` for what is no version.
        """
        try:
            torch = Version(text)
        except InvalidVersion:
            raise InputError(f"{text!r} is not a version of torch", hint="write --for 2.14") from None
        pythons = [
            each.python.version
            for each in manifest.environments
            if each.on_disk
            and each.torch
            and Version(each.torch).release[: len(torch.release)] == torch.release
        ]
        oldest = min(pythons, key=Version, default=None)
        # 2.14 for v2.14 and 2.14+cu126 as well: copies go by this name.
        plain = ".".join(map(str, torch.release))
        return cls(torch=plain, python=oldest, system=system)

    @property
    def plain_path(self) -> bool:
        """Whether the path that Python 3.13 writes must be written for every Python."""
        return needs_plain_path(self.python)

    def is_read(self, reader: Reader) -> bool:
        """Whether the target reads what has this reader."""
        return reader.reads(self.torch, self.python, self.system) is True


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy, or the reason why there is none to make; `carried` says how its other files came there."""

    source: str
    copy: str
    made: bool
    why: str = ""
    metadata: int = 0  # bytes that were written
    files: int = 0
    carried: frozenset[Transfer] = frozenset()


def downgrade(
    source: str, target: DowngradeTarget, *, to: str | None = None, link: bool = False, progress: Progress
) -> Copied:
    """Make a copy of one checkpoint, under `to` or beside it; one that is there already is left as it is.

    Raises `InputError` where there is no distributed checkpoint or the name is taken, `NothingSuits` where
    a copy could not be read either; then nothing is made.
    """
    there = place(source)
    aim = to or f"{source}-for-{target.torch}"
    if _is_within(aim, source):
        raise InputError(f"a copy cannot be inside its original, {source}", hint="name another place")
    checkpoint = _inspect_checkpoint(there)
    if target.is_read(checkpoint.reader) and checkpoint.state == "complete":
        why = f"torch {target.torch} reads it as it is"
        return Copied(source=source, copy=source, made=False, why=why)
    _refuse(checkpoint, target)
    rewritten = _rewritten(there, source, target)
    sizes = there.files()
    goal = place(aim)
    if goal.exists() and _is_whole(goal, sizes, rewritten):
        return Copied(source=source, copy=aim, made=False, why="already copied")
    if goal.exists() and not (is_remote(aim) and GLOBAL not in goal.files()):
        hint = "name another place for the copy: `torchenv checkpoints downgrade SRC DST`"
        raise InputError(
            f"`{aim}` already exists and is no copy of `{source}` for torch {target.torch}", hint=hint
        )
    carried = _write_copy(there, goal, sizes, rewritten, link=link, progress=progress)
    return Copied(
        source=source,
        copy=aim,
        made=True,
        metadata=sum(len(each.data) for each in rewritten.values()),
        files=len(sizes) - len(rewritten),
        carried=carried,
    )


def _is_within(aim: str, source: str) -> bool:
    if is_remote(aim) or is_remote(source):
        return f"{aim}/".startswith(f"{source}/")
    return Path(os.path.realpath(aim)).is_relative_to(os.path.realpath(source))


def downgrade_runs(
    root: str,
    target: DowngradeTarget,
    *,
    newest: bool,
    to: str | None,
    link: bool,
    progress: Progress,
    say: Say,
) -> tuple[tuple[Copied, ...], tuple[str, ...]]:
    """Make copies of every complete save below `root`, or of the newest of each run; the same way.

    Gives the copies, and a sentence on each save of which none can be made. `to` is a directory in which the
    copies go by the names of their originals.
    """
    index = scan([place(root)], None, say)
    copies: list[Copied] = []
    refused: list[str] = []
    for run in runs_of(index, str):
        complete = [save for save in run.saves if save.complete]
        if not complete:
            refused.append(f"{run.path}: none of its saves is complete")
        for save in complete[-1:] if newest else complete:
            for path in _find_distributed_parts(save, index, target):
                aim = _aim(save, path, root, to, target)
                try:
                    copied = downgrade(path, target, to=aim, link=link, progress=progress)
                except (NothingSuits, InputError) as error:
                    refused.append(f"{path}: {error.message}")
                    continue
                copies.append(copied)
                if copied.made:
                    say(f"copied {path} to {copied.copy}, which torch {target.torch} reads")
    return tuple(copies), tuple(refused)


def _find_distributed_parts(save: Save, index: ScanIndex, target: DowngradeTarget) -> list[str]:
    """Name the parts of a save that the target cannot read and that may be downgraded, or why not told."""
    unread = [part for part in save.parts if not target.is_read(index.readers[part.found.reader])]
    return [part.path for part in unread if part.found.format == "dcp"]


def _aim(save: Save, path: str, root: str, to: str | None, target: DowngradeTarget) -> str:
    """Name the copy of a part: what a save holds stays together."""
    if to is None:
        return f"{save.path}-for-{target.torch}{path.removeprefix(save.path)}"
    name = path.removeprefix(root).lstrip("/\\") or Path(root).name
    return f"{to.rstrip('/')}/{name}"


def _inspect_checkpoint(there: Place) -> Checkpoint:
    if not there.exists():
        raise InputError(f"{there.address} is not there")
    index = scan([there], None, lambda _: None)
    found = [each for _, address, _, each in index if address == there.address]
    if not found:
        hint = "for the saves of a run, say --newest or --all"
        raise InputError(f"{there.address} is no checkpoint", hint=hint)
    return index.checkpoint(there.address, found[0])


def _refuse(checkpoint: Checkpoint, target: DowngradeTarget) -> None:
    if checkpoint.state != "complete":
        said = "; ".join(note.message for note in checkpoint.problems)
        raise NothingSuits(f"{checkpoint.path} is {checkpoint.state}: {said}")
    reader = checkpoint.reader
    reasons = "; ".join(note.message for note in reader.because)
    if checkpoint.format != "dcp":
        raise NothingSuits(
            f"{checkpoint.path} is no distributed checkpoint, and only these can be downgraded: {reasons}"
        )
    after = reader_after(reader, target.plain_path)
    if not target.is_read(after):
        reasons = "; ".join(note.message for note in after.because if not target.is_read(_alone(note)))
        said = f"torch {target.torch} would not read a copy of {checkpoint.path} either"
        raise NothingSuits(f"{said}: {reasons}")


def _alone(note: CheckpointNote) -> Reader:
    return rules().reader([note.code])


def _rewritten(there: Place, source: str, target: DowngradeTarget) -> dict[str, Downgraded]:
    from torchenv.checkpoints.downgrade import downgrade as rewrite

    tree = there.tree(there.address)
    rewritten = {}
    for name in tree.sizes():
        if name == GLOBAL or RANK_LOCAL.fullmatch(name):
            try:
                rewritten[name] = rewrite(tree.read(name), target.torch, portable_path=target.plain_path)
            except Damaged as damaged:
                raise NothingSuits(f"{source}/{name}: {damaged.message}") from None
    return rewritten


def _write_copy(
    there: Place,
    goal: Place,
    sizes: Mapping[str, int],
    rewritten: Mapping[str, Downgraded],
    *,
    link: bool,
    progress: Progress,
) -> frozenset[Transfer]:
    """Write the copy where no one takes it for one, look at it, and only then give it its name."""
    draft = goal.draft()
    try:
        untouched = {name: size for name, size in sizes.items() if name not in rewritten}
        carried = carry(draft, there, untouched, goal.address, link=link, progress=progress)
        for name, each in rewritten.items():
            draft.write(name, each.data)
        _check(draft, goal.address, sizes, rewritten)
        draft.finish()
    except OSError as error:
        draft.abandon()
        # A full disk does not say which.
        error.filename = error.filename or goal.address
        raise
    except BaseException:
        draft.abandon()
        raise
    return carried


def _check(draft: Draft, address: str, sizes: Mapping[str, int], rewritten: Mapping[str, Downgraded]) -> None:
    wrong = _differences(draft.sizes(), sizes, rewritten)
    wrong += [name for name, each in rewritten.items() if name not in wrong and draft.read(name) != each.data]
    if wrong:
        raise ToolFailed(f"the copy {address} does not hold what was written to it: {', '.join(wrong)}")


def _is_whole(goal: Place, sizes: Mapping[str, int], rewritten: Mapping[str, Downgraded]) -> bool:
    if _differences(goal.files(), sizes, rewritten):
        return False
    tree = goal.tree(goal.address)
    return all(tree.read(name) == each.data for name, each in rewritten.items())


def _differences(
    found: Mapping[str, int], sizes: Mapping[str, int], rewritten: Mapping[str, Downgraded]
) -> list[str]:
    wanted = {**sizes, **{name: len(each.data) for name, each in rewritten.items()}}
    return [name for name in sorted(wanted.keys() | found.keys()) if wanted.get(name) != found.get(name)]
