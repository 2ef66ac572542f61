"""Make copies of whole saves that an older torch reads; the originals are never changed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from packaging.version import InvalidVersion, Version

from torchenv.actions.pointers import CopyPointer, point_to_copy
from torchenv.checkpoints.downgrade import Downgraded
from torchenv.checkpoints.formats.dcp import GLOBAL, RANK_LOCAL
from torchenv.checkpoints.formats.inert import Damaged
from torchenv.checkpoints.lifeboats import make_printable
from torchenv.checkpoints.readability import reader_after, rules
from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.scan.runs import needs_plain_path, runs_of
from torchenv.checkpoints.steps import is_save
from torchenv.checkpoints.values import Checkpoint, CheckpointNote, Reader, describe_state
from torchenv.errors import InputError, NothingSuits, ToolFailed
from torchenv.storage import Draft, Place, Progress, Transfer, is_remote, place
from torchenv.storage.carry import carry
from torchenv.system.disk import suggest
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest

Say = Callable[[str], None]


@frozen(kw_only=True)
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
            raise InputError(f"`{text}` is not a version of torch", hint="write --for 2.14") from None
        pythons = [
            environment.python.version
            for environment in manifest.environments
            if environment.on_disk
            and environment.torch
            and Version(environment.torch).release[: len(torch.release)] == torch.release
        ]
        oldest = min(pythons, key=Version, default=None)
        # 2.14 for v2.14 and 2.14+cu126 as well: copies go by this name.
        plain = ".".join(map(str, torch.release))
        return cls(torch=plain, python=oldest, system=system)

    @property
    def plain_path(self) -> bool:
        """Whether the path that Python 3.13 writes must be written for every Python."""
        return needs_plain_path(self.python)

    def is_of(self, torch: str) -> bool:
        """Whether a release of torch is the target, or one of its line."""
        wanted = Version(self.torch).release
        return Version(torch).release[: len(wanted)] == wanted

    def find_obstacles(self, reader: Reader) -> list[CheckpointNote]:
        """Return what keeps the target from reading what has this reader."""
        return [
            note
            for note in reader.because
            if _alone(note).reads(self.torch, self.python, self.system) is False
        ]

    def is_read(self, reader: Reader) -> bool:
        """Whether the target reads what has this reader."""
        return reader.reads(self.torch, self.python, self.system) is True


@frozen(kw_only=True)
class Copied:
    """A copy, or the reason why there is none to make; `carried` says how its other files came there."""

    source: str
    copy: str
    made: bool
    why: str = ""
    metadata: int = 0  # bytes that were written
    files: int = 0
    carried: frozenset[Transfer] = frozenset()
    pointers: tuple[CopyPointer, ...] = ()


def downgrade(
    source: str,
    target: DowngradeTarget,
    *,
    to: str | None = None,
    name: str | None = None,
    link: bool = False,
    progress: Progress,
) -> Copied:
    """Make a copy of one whole save, every part of it; one that is there already is left as it is.

    The copy goes `to` a place, else by the save's own `name` into a directory beside that of its run, where
    the finder of its framework takes it and its retention deletes nothing because of it.
    Raises `InputError` where there is no checkpoint or the name is taken, `NothingSuits` where a part could
    not be read either; then nothing is made.
    """
    there = place(source)
    aim = to or find_aim(source, target, name)
    if is_within(aim, source):
        raise InputError(
            f"a copy cannot be inside its original, `{make_printable(source)}`", hint="name another place"
        )
    parts = find_parts(there)
    unread = [part for part in parts if _is_unread(part, target)]
    if not unread and all(part.state == "complete" for part in parts):
        why = f"torch {target.torch} reads it as it is"
        if not all(target.is_read(part.reader) for part in parts):
            why = f"nothing in its format keeps torch {target.torch} from reading it"
        return Copied(source=source, copy=source, made=False, why=why)
    for part in parts:
        _refuse(part, target, is_unread=part in unread)
    rewritten = {
        name: data for part in unread for name, data in _rewrite(there, source, part.path, target).items()
    }
    sizes = there.files()
    goal = place(aim)
    if goal.exists() and _is_whole(goal, sizes, rewritten):
        return Copied(source=source, copy=aim, made=False, why="already copied")
    if goal.exists() and not (is_remote(aim) and not rewritten.keys() & goal.files().keys()):
        words = ["torchenv", "checkpoints", "downgrade", source, f"{aim}-2", "--for", target.torch]
        hint = f"name another place for the copy: `{shlex.join(words)}`"
        raise InputError(
            f"`{make_printable(aim)}` already exists and is not a copy of `{make_printable(source)}`"
            f" for torch {target.torch}",
            hint=hint,
        )
    carried = write_copy(there, goal, sizes, rewritten, link=link, progress=progress)
    return Copied(
        source=source,
        copy=aim,
        made=True,
        metadata=sum(len(metadata.data) for metadata in rewritten.values()),
        files=len(sizes) - len(rewritten),
        carried=carried,
        pointers=() if to else point_to_copy(source, aim),
    )


def find_aim(source: str, target: DowngradeTarget, name: str | None) -> str:
    """Name the copy of a save: by its own name, or another, in a directory for the copies of its run."""
    between = "/" if is_remote(source) else os.sep
    run, _, own = source.rstrip(between).rpartition(between)
    return f"{run}-for-{target.torch}{between}{name or own}"


def is_within(aim: str, source: str) -> bool:
    """Whether an address is that of a checkpoint, or leads into it."""
    if is_remote(aim) or is_remote(source):
        return f"{aim.rstrip('/')}/".startswith(f"{source.rstrip('/')}/")
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
    copies go by the paths of their originals.
    """
    index = scan([place(root)], None, say)
    copies: list[Copied] = []
    refused: list[str] = []
    for run in runs_of(index, str):
        complete = [save for save in run.saves if save.complete and not save.copy_kind]
        if not complete:
            refused.append(f"{make_printable(run.path)}: none of its saves is complete")
        for save in complete[-1:] if newest else complete:
            if all(target.is_read(index.readers[part.found.reader]) for part in save.parts):
                continue
            aim = f"{to.rstrip('/')}/{_name_below(save.path, root)}" if to else None
            try:
                copied = downgrade(save.path, target, to=aim, link=link, progress=progress)
            except (NothingSuits, InputError) as error:
                refused.append(f"{make_printable(save.path)}: {error.message}")
                continue
            copies.append(copied)
            if copied.made:
                say(f"copied {save.path} to {copied.copy}, which torch {target.torch} reads")
    return tuple(copies), tuple(refused)


def _name_below(path: str, root: str) -> str:
    return path.removeprefix(root).lstrip("/\\") or Path(root).name


def find_parts(there: Place) -> tuple[Checkpoint, ...]:
    """Return all checkpoints of the save that is at a place; raises `InputError` where it is none."""
    if not there.exists():
        raise InputError(f"`{make_printable(there.address)}` does not exist")
    index = scan([there], None, lambda _: None)
    between = "/" if is_remote(there.address) else os.sep
    inside = f"{there.address}{between}"
    saves = {save.path for run in runs_of(index, str) for save in run.saves if save.path.startswith(inside)}
    of_runs = [path for path in saves if is_save(path.rpartition(between)[2])]
    found = list(index)
    if not found or (len(of_runs) > 1 and not is_save(there.address.rpartition(between)[2])):
        hint = "add --newest or --all for the saves of a run"
        raise InputError(f"`{make_printable(there.address)}` is not a checkpoint", hint=hint)
    # As the layout of its trainer judges it: what lacks a part is not complete.
    return tuple(
        index.checkpoint(part.path, part.found)
        for run in runs_of(index, str)
        for save in run.saves
        for part in save.parts
    )


def _is_unread(part: Checkpoint, target: DowngradeTarget) -> bool:
    reads = part.reader.reads(target.torch, target.python, target.system)
    # What holds classes of the user's own is theirs to say; of metadata it must be known.
    return reads is False or (reads is None and part.format == "dcp")


def _refuse(part: Checkpoint, target: DowngradeTarget, *, is_unread: bool) -> None:
    if part.state != "complete":
        said = "; ".join(note.message for note in part.problems)
        raise NothingSuits(f"{make_printable(part.path)} is {describe_state(part.state)}: {said}")
    if not is_unread:
        return
    reader = part.reader
    if part.format != "dcp":
        reasons = "; ".join(note.message for note in reader.because if not target.is_read(_alone(note)))
        raise NothingSuits(
            f"{make_printable(part.path)} is not a distributed checkpoint;"
            f" only those can be downgraded: {reasons}"
        )
    after = reader_after(reader, portable_path=target.plain_path)
    if not target.is_read(after):
        reasons = "; ".join(note.message for note in after.because if not target.is_read(_alone(note)))
        said = f"torch {target.torch} cannot read a copy of {make_printable(part.path)} either"
        raise NothingSuits(f"{said}: {reasons}")


def _alone(note: CheckpointNote) -> Reader:
    return rules().reader([note.code])


def _rewrite(there: Place, source: str, part: str, target: DowngradeTarget) -> dict[str, Downgraded]:
    """Return the metadata of a part as the target reads them, by their names in the save."""
    from torchenv.checkpoints.downgrade import downgrade as rewrite

    tree = there.tree(part)
    below = part.removeprefix(source).lstrip("/\\").replace("\\", "/")
    rewritten = {}
    for name in tree.sizes():
        if name == GLOBAL or RANK_LOCAL.fullmatch(name):
            try:
                data = rewrite(tree.read(name), target.torch, portable_path=target.plain_path)
            except Damaged as damaged:
                raise NothingSuits(f"{make_printable(part)}/{name}: {damaged.message}") from None
            rewritten[f"{below}/{name}" if below else name] = data
    return rewritten


def write_copy(
    there: Place,
    goal: Place,
    sizes: Mapping[str, int],
    rewritten: Mapping[str, Downgraded],
    *,
    link: bool,
    progress: Progress,
) -> frozenset[Transfer]:
    """Write the copy where no one takes it for one, look at it, and only then give it its name."""
    with suggest("name a place for the copy in another directory"):
        draft = goal.draft()
    try:
        untouched = {name: size for name, size in sizes.items() if name not in rewritten}
        carried = carry(draft, there, untouched, goal.address, link=link, progress=progress)
        for name, metadata in rewritten.items():
            draft.write(name, metadata.data)
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
    wrong += [
        name
        for name, metadata in rewritten.items()
        if name not in wrong and draft.read(name) != metadata.data
    ]
    if wrong:
        raise ToolFailed(f"the copy {address} does not hold what was written to it: {', '.join(wrong)}")


def _is_whole(goal: Place, sizes: Mapping[str, int], rewritten: Mapping[str, Downgraded]) -> bool:
    if _differences(goal.files(), sizes, rewritten):
        return False
    tree = goal.tree(goal.address)
    return all(tree.read(name) == metadata.data for name, metadata in rewritten.items())


def _differences(
    found: Mapping[str, int], sizes: Mapping[str, int], rewritten: Mapping[str, Downgraded]
) -> list[str]:
    wanted = {**sizes, **{name: len(metadata.data) for name, metadata in rewritten.items()}}
    return [name for name in sorted(wanted.keys() | found.keys()) if wanted.get(name) != found.get(name)]
