"""Keep a checkpoint untouched, so that the environment to fall back to has something to fall back on."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from torchenv.actions.checkpoints import Paths, readers
from torchenv.actions.downgrade import is_within
from torchenv.checkpoints.lifeboats import make_printable
from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.scan.index import ScanIndex
from torchenv.checkpoints.scan.runs import Judge, runs_of
from torchenv.checkpoints.steps import is_save
from torchenv.errors import InputError, NothingSuits, ToolFailed, WorkspaceError
from torchenv.storage import Place, Progress, Transfer, is_remote, place
from torchenv.storage.carry import carry
from torchenv.system.documents import Table
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Kept
from torchenv.workspace.store import Store

SCHEMA = "torchenv.kept/1"
_BLOCK = 1 << 20
_NAMED = 5  # saves of a run that are named, the newest


class Hashed(NamedTuple):
    """A file of a lifeboat: its size in bytes, and its SHA-256."""

    bytes: int
    sha256: str


@frozen(kw_only=True)
class Keeping:
    """A lifeboat as it was just recorded; `carried` says how its copy was made, if it was made now."""

    kept: Kept
    files: int
    bytes: int
    carried: frozenset[Transfer] = frozenset()


@frozen
class KeptChange:
    """What is no longer as it was when a checkpoint was kept."""

    path: str
    file: str
    what: str  # changed, missing, added, unreadable

    def __str__(self) -> str:
        name = f"{self.path}/{self.file}" if self.file else self.path
        return f"{make_printable(name)}: {self.what}"


def keep(
    address: str,
    store: Store,
    *,
    copy: bool,
    link: bool = False,
    copy_to: str | None = None,
    system: str,
    progress: Progress,
) -> Keeping:
    """Record the hash of every file of a checkpoint, and with `copy` bring it into the workspace.

    A copy shares nothing with the original, unless `link` asks for hard links, which are the same files.
    With `copy_to` it goes below that place, an object store for one, and every file is hashed there again.
    Raises `InputError` where there is no checkpoint or the copy would be inside it, `NothingSuits` where it
    is not complete, is still being written, or is not what was kept at the same path before.
    """
    if copy_to is not None:
        refuse_inside(address, copy_to)
    there = place(address)
    paths = Paths.of(store)
    index = scan([there], None, lambda _: None)
    # As the layout of its trainer judges it: what lacks a part is not complete.
    found = [part.found for run in runs_of(index, str) for save in run.saves for part in save.parts]
    if not found:
        hint = "name its directory or file; `torchenv checkpoints scan` lists them"
        raise InputError(f"`{address}` holds no checkpoint", hint=hint)
    _refuse_run(address, index)
    wrong = [(code, said) for one in found if one.state != "complete" for code, said in one.problems]
    if wrong:
        said = "; ".join(message for _, message in wrong)
        is_writing = any(one.state == "writing" for one in found)
        hint = "keep it once its save is finished" if is_writing else "keep one that is complete"
        raise NothingSuits(f"{address} cannot be kept: {said}", hint=hint)
    changed = there.modification_time()
    hashes = hash_files(there, progress)
    _refuse_changing(there, hashes, changed)
    digest = digest_of(hashes)
    before = store.read()
    shown = paths.display(address)
    _refuse_changed(shown, hashes, before, store)
    judge = Judge(index, before.environments, system)
    reading = set.intersection(*(set(readers(one, judge)) for one in found))
    copied: str | None = None
    carried: frozenset[Transfer] = frozenset()
    # Before the workspace is held: bringing it elsewhere may take hours.
    if copy_to is not None:
        copied, carried = _copy_apart(there, copy_to, digest, hashes, changed, progress=progress)
    elif copy:
        target = store.make_lifeboat_directory(digest)
        if os.path.exists(target) and any(_changes(str(target), place(target), hashes, progress)):
            store.delete_lifeboat_copy(digest)
        carried = _copy_files(there, place(target), hashes, changed, link=link, progress=progress)
        copied = str(target.absolute())
    with store.hold("torchenv checkpoints keep"):
        manifest = store.read()
        _refuse_changed(shown, hashes, manifest, store)
        if (at := copied or copy_to) is not None:
            copied = paths.display(at)
        else:
            same = (kept for kept in manifest.kept if (kept.path, kept.digest) == (shown, digest))
            copied = next((kept.copy for kept in same), None)
        kept = Kept(
            path=shown,
            digest=digest,
            readable_by=tuple(sorted(reading)),
            saved=datetime.fromtimestamp(int(changed), UTC),
            copy=copied,
        )
        store.write_kept(digest, _listing(shown, hashes))
        store.write(manifest.keep(kept))
    sizes = [hashed.bytes for hashed in hashes.values()]
    return Keeping(kept=kept, files=len(sizes), bytes=sum(sizes), carried=carried)


def refuse_inside(address: str, copy_to: str) -> None:
    """Raise `InputError` for a copy that would be written into its original."""
    if is_within(copy_to, address):
        said = f"a copy cannot be inside its original, `{make_printable(address)}`"
        raise InputError(said, hint="name a directory outside it with `--copy-to`")


def _refuse_changed(shown: str, hashes: Mapping[str, Hashed], manifest: Manifest, store: Store) -> None:
    """Refuse to take changed bytes for what was kept: the hashes of the bytes before would be lost."""
    before = next((kept for kept in manifest.kept if kept.path == shown), None)
    if before is None or before.digest == digest_of(hashes):
        return
    try:
        differences = [
            f"{make_printable(change.file)} {change.what}"
            for change in _compare(shown, hashes, _read_hashes(before, store))
        ]
    except WorkspaceError:
        differences = []  # its list is damaged; the digest alone says that it is not the same
    more = f" and {len(differences) - _NAMED} more" if len(differences) > _NAMED else ""
    named = f": {', '.join(differences[:_NAMED])}{more}" if differences else ""
    path = shlex.quote(shown)
    hint = (
        f"run `torchenv checkpoints verify {path}`; to keep it as it is now, first run"
        f" `torchenv checkpoints keep --release {path}`"
    )
    raise NothingSuits(f"`{make_printable(shown)}` has changed since it was kept{named}", hint=hint)


def _refuse_run(address: str, index: ScanIndex) -> None:
    """Refuse a directory that holds the saves of a run: it grows, and what is kept must not."""
    inside = f"{address.rstrip('/')}{'/' if is_remote(address) else os.sep}"
    saves = [
        save.path
        for run in runs_of(index, str)
        for save in run.saves
        if save.path.startswith(inside) and is_save(save.name)
    ]
    if len(saves) > 1:
        shown = ", ".join(map(make_printable, saves[-_NAMED:]))
        hint = f"keep those that you may need, each by its path: {shown}"
        raise InputError(
            f"{make_printable(address)} is not a checkpoint but holds {len(saves)} saves", hint=hint
        )


def _refuse_changing(there: Place, hashes: Mapping[str, Hashed], changed: float) -> None:
    if (
        there.files() != {name: hashed.bytes for name, hashed in hashes.items()}
        or there.modification_time() != changed
    ):
        hint = "keep it once its save is finished"
        raise NothingSuits(f"{there.address} changed while it was read", hint=hint)


def release(address: str, store: Store) -> Kept:
    """Keep a checkpoint no longer; its files stay as they are, and a copy in the workspace stays, too."""
    shown = Paths.of(store).display(address)
    with store.hold_existing("torchenv checkpoints keep --release"):
        manifest = store.read()
        found = next((kept for kept in manifest.kept if kept.path == shown), None)
        if found is None:
            raise InputError(
                f"`{shown}` is not kept", hint="run `torchenv checkpoints verify` to list what is"
            )
        store.write(replace(manifest, kept=tuple(kept for kept in manifest.kept if kept != found)))
    return found


def verify(
    named: tuple[str, ...], store: Store, progress: Progress
) -> tuple[tuple[Kept, ...], tuple[KeptChange, ...]]:
    """Hash the lifeboats again, all or those at these addresses; gives them with what has changed since.

    Raises `InputError` for one that is not kept.
    """
    paths = Paths.of(store)
    kept = store.read().kept
    if named:
        wanted = [paths.display(address) for address in named]
        known = {one.path: one for one in kept}
        for path in wanted:
            if path not in known:
                raise InputError(f"`{path}` is not kept", hint=f"run `torchenv checkpoints keep {path}`")
        kept = tuple(known[path] for path in wanted)
    changes: list[KeptChange] = []
    for one in kept:
        recorded = _read_hashes(one, store)
        for at in filter(None, (one.path, one.copy)):
            changes += _changes(at, place(paths.address(at)), recorded, progress)
    return kept, tuple(changes)


def hash_files(there: Place, progress: Progress) -> dict[str, Hashed]:
    """Return the size and SHA-256 of every file of a place."""
    sizes = there.files()
    total, done = sum(sizes.values()), 0
    hashes = {}
    with ThreadPoolExecutor() as pool:
        for name, hashed in zip(sizes, pool.map(lambda name: _hash(there, name), sizes), strict=True):
            hashes[name] = hashed
            done += hashed.bytes
            progress(done, total)
    return hashes


def digest_of(hashes: Mapping[str, Hashed]) -> str:
    """Return one digest for all files of a checkpoint."""
    lines = (f"{hashed.sha256} {hashed.bytes} {name}\n" for name, hashed in sorted(hashes.items()))
    return f"sha256:{hashlib.sha256(''.join(lines).encode('utf-8', 'surrogateescape')).hexdigest()}"


def _hash(there: Place, name: str) -> Hashed:
    digest, size = hashlib.sha256(), 0
    with there.open(name) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return Hashed(size, digest.hexdigest())


def _copy_apart(
    there: Place,
    copy_to: str,
    digest: str,
    hashes: Mapping[str, Hashed],
    changed: float,
    *,
    progress: Progress,
) -> tuple[str, frozenset[Transfer]]:
    """Copy a checkpoint below a place, by its name and digest, and prove what is there; gives its address."""
    between = "/" if is_remote(copy_to) else os.sep
    name = there.address.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
    target = place(f"{copy_to.rstrip('/')}{between}{name}-{digest.rpartition(':')[2][:16]}")
    carried = _copy_files(there, target, hashes, changed, link=False, progress=progress)
    wrong = list(_changes(target.address, target, hashes, progress))
    if wrong:
        hint = "delete what is there, and keep it again"
        raise ToolFailed(
            f"the copy differs from what was kept: {'; '.join(map(str, wrong[:_NAMED]))}", hint=hint
        )
    return target.address, carried


def _copy_files(
    there: Place,
    target: Place,
    hashes: Mapping[str, Hashed],
    changed: float,
    *,
    link: bool,
    progress: Progress,
) -> frozenset[Transfer]:
    if target.exists():
        return frozenset()  # its name is its digest, and its files are hashed before or after
    draft = target.draft()
    try:
        sizes = {name: hashed.bytes for name, hashed in hashes.items()}
        carried = carry(draft, there, sizes, target.address, link=link, progress=progress)
        _refuse_changing(there, hashes, changed)
        draft.finish()
    except BaseException:
        draft.abandon()
        raise
    return carried


def _listing(shown: str, hashes: Mapping[str, Hashed]) -> str:
    files = {name: {"bytes": hashed.bytes, "sha256": hashed.sha256} for name, hashed in hashes.items()}
    return json.dumps({"schema": SCHEMA, "path": shown, "files": files}, indent=1)


def _read_hashes(kept: Kept, store: Store) -> dict[str, Hashed]:
    """Read the list of the files of a lifeboat; the manifest's digest says whether it is the right one."""
    hint = f"run `torchenv checkpoints keep {kept.path}` to record it again"
    path = store.lifeboat_path(kept.digest or "")
    try:
        table = Table.from_json(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise WorkspaceError(
            f"`{path}`, which lists the files of `{kept.path}`, is missing", hint=hint
        ) from None
    listed = table.table("files")
    hashes = {
        name: Hashed(listed.table(name).get("bytes", int), listed.table(name).get("sha256", str))
        for name in listed
    }
    if digest_of(hashes) != kept.digest:
        raise WorkspaceError(f"`{path}` is not the list of files recorded for `{kept.path}`", hint=hint)
    return hashes


def _changes(
    shown: str, there: Place, recorded: Mapping[str, Hashed], progress: Progress
) -> Iterator[KeptChange]:
    try:
        now = hash_files(there, progress)
    except FileNotFoundError:
        yield KeptChange(shown, "", "missing")
        return
    except OSError as error:
        yield KeptChange(shown, "", f"unreadable: {error.strerror or error}")
        return
    except InputError as error:
        yield KeptChange(shown, "", f"unreadable: {error.message}")
        return
    if recorded and not now:
        yield KeptChange(shown, "", "missing")
        return
    yield from _compare(shown, now, recorded)


def _compare(shown: str, now: Mapping[str, Hashed], recorded: Mapping[str, Hashed]) -> Iterator[KeptChange]:
    for name in sorted(recorded.keys() | now.keys()):
        if name not in now:
            yield KeptChange(shown, name, "missing")
        elif name not in recorded:
            yield KeptChange(shown, name, "added")
        elif now[name] != recorded[name]:
            yield KeptChange(shown, name, "changed")
