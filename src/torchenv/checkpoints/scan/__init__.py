"""Walks directories and object stores for checkpoints; looks again only at what has changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock

from torchenv.checkpoints import inspect
from torchenv.checkpoints.formats.weight_index import find_missing_shards
from torchenv.checkpoints.layouts import layouts
from torchenv.checkpoints.scan.index import Found, ScanIndex, ScannedFolder
from torchenv.checkpoints.steps import is_save
from torchenv.checkpoints.values import Checkpoint, CheckpointNote, Reader, escape_name
from torchenv.errors import InputError, ToolFailed
from torchenv.storage import Folder, Place, is_remote
from torchenv.storage.names import is_being_written

_WHOLE = (".distcp", ".metadata", ".metadata.tmp")
_SAFETENSORS = ".safetensors"
_WEIGHTS = ".bin.index.json"
_LONGEST = 4096  # bytes of a pointer file
_MANY = 2000  # folders that take longer to look at than processes to start
# Names that others use as well: a file that torch did not write is none of a training's.
_OTHERS_USE = (".bin", ".tar", ".pkl")


def scan(roots: Sequence[Place], before: ScanIndex | None, say: Callable[[str], None]) -> ScanIndex:
    """Look for checkpoints below these places; only reads.

    `before` is what an earlier scan found, and what has not changed since is not read again.
    Raises `InputError` for a root that is not there.
    """
    index = before.without_roots() if before else ScanIndex()
    scan_into(index, roots, before, say)
    return index


def scan_into(
    index: ScanIndex,
    roots: Sequence[Place],
    before: ScanIndex | None,
    say: Callable[[str], None],
    workers: int = 1,
) -> None:
    """Do so for an index that has all that was seen so far whenever this is interrupted.

    With more `workers` than one, what is new is looked at in so many processes where it is much.
    """
    failed: list[ToolFailed] = []
    for root in roots:
        known = before.roots.get(root.address, {}) if before else {}
        seen = index.roots[root.address] = {}
        others = [other.address for other in roots if other is not root and not is_remote(other.address)]
        try:
            # Not made first and put there then: what was seen must be there when this is interrupted.
            for address, folder in _scan_root(root, others, known, index, say=say, workers=workers):
                seen[address] = folder  # noqa: PERF403
        except ToolFailed as error:
            # A store that does not answer keeps nobody from looking at the others.
            failed.append(error)
            seen.update({address: folder for address, folder in known.items() if address not in seen})
            if len(roots) > 1:
                say(f"{error.message}: what was seen there before is kept")
        _look_beside(root, index)
    if failed and len(failed) == len(roots):
        raise failed[0]


def _scan_root(
    root: Place,
    others: Collection[str],
    known: dict[str, ScannedFolder],
    index: ScanIndex,
    *,
    say: Callable[[str], None],
    workers: int,
) -> Iterator[tuple[str, ScannedFolder]]:
    adder, waiting = _Adder(index), list[tuple[str, Folder]]()
    try:
        for address, folder in root.walk({address: seen.folder for address, seen in known.items()}, others):
            if folder.closed:
                say(f"{address} {folder.closed}")
                continue
            seen = known.get(address)
            if seen is not None and seen.folder is folder:
                yield address, seen
                continue
            if seen is not None and seen.folder.files == folder.files:
                yield address, ScannedFolder(folder, seen.found, seen.pointers)
            elif folder.files and (root.at_once > 1 or workers > 1):
                waiting.append((address, folder))
            elif folder.files:
                yield address, _look(root, adder, address, folder)
                _count(root, index, say)
        for address, looked in _look_together(root, adder, index, waiting, workers):
            yield address, looked
            _count(root, index, say)
    except FileNotFoundError:
        raise InputError(
            f"`{root.address}` does not exist", hint="name a checkpoint or a folder that exists"
        ) from None
    except OSError as error:
        raise InputError(f"{root.address} cannot be opened: {error.strerror or error}") from None


def _count(root: Place, index: ScanIndex, say: Callable[[str], None]) -> None:
    index.read += 1
    if index.read % 1000 == 0:
        say(f"{root.address}: {index.read} folders read")


class _Adder:
    """An index to which several threads add, one after the other."""

    def __init__(self, index: ScanIndex) -> None:
        self._index = index
        self._lock = Lock()

    def add(self, checkpoint: Checkpoint, name: str) -> Found:
        with self._lock:
            return self._index.add(checkpoint, name)


def _look_together(
    root: Place, adder: _Adder, index: ScanIndex, waiting: Sequence[tuple[str, Folder]], workers: int
) -> Iterator[tuple[str, ScannedFolder]]:
    if root.at_once == 1:
        if workers > 1 and len(waiting) >= _MANY:
            from torchenv.checkpoints.scan.cores import look_on_every_core

            yield from look_on_every_core(partial(_look_all, root), waiting, index, workers)
        else:
            yield from ((address, _look(root, adder, address, folder)) for address, folder in waiting)
        return
    from concurrent.futures import ThreadPoolExecutor  # no scan of this machine's disk starts a thread

    with ThreadPoolExecutor(root.at_once) as pool:
        looks = pool.map(lambda item: _look(root, adder, *item), waiting)
        yield from ((address, looked) for (address, _), looked in zip(waiting, looks, strict=True))


def _look_all(root: Place, waiting: Sequence[tuple[str, Folder]], index: ScanIndex) -> list[ScannedFolder]:
    adder = _Adder(index)
    return [_look(root, adder, address, folder) for address, folder in waiting]


def _look(root: Place, adder: _Adder, address: str, folder: Folder) -> ScannedFolder:
    found = list(_look_at(root, address, folder, adder))
    return ScannedFolder(folder, found, _read_pointers(root, address, folder))


def _look_at(root: Place, address: str, folder: Folder, index: _Adder) -> Iterator[Found]:
    whole = _whole(folder)
    if whole and (checkpoint := _inspect_folder(root, address)) is not None:
        yield index.add(checkpoint, "")
    one = root.address == address and len(folder.files) == 1 and address.endswith(next(iter(folder.files)))
    missing = {
        name: found
        for name in folder.files
        if name.endswith(_WEIGHTS) and (found := find_missing_shards(root.tree(address), name, folder.files))
    }
    lacking = {shard: found.note for found in missing.values() for shard in found.there}
    for name in sorted(folder.files):
        if is_being_written(name):
            note = CheckpointNote("unfinished", f"by its name it is not finished: {escape_name(name)}")
            yield index.add(_describe_incomplete(address, name, folder, note), name)
            continue
        if name in missing and not missing[name].there:
            yield index.add(_describe_incomplete(address, name, folder, missing[name].note), name)
            continue
        if name.endswith(_WHOLE) or (whole and name.endswith((_SAFETENSORS, f"{_SAFETENSORS}.index.json"))):
            continue
        checkpoint = _inspect_folder(root, address if one else f"{address}/{name}")
        if checkpoint is None or _is_others(name, checkpoint):
            continue
        if name in lacking and checkpoint.state == "complete":
            problems = (*checkpoint.problems, lacking[name])
            checkpoint = replace(checkpoint, state="incomplete", problems=problems)
        yield index.add(checkpoint, "" if one else name)


def _look_beside(root: Place, index: ScanIndex) -> None:
    """Look where the words of its writer are, if a root is itself a save."""
    own = index.roots[root.address].get(root.address)
    is_whole = own is not None and any(not found.name for found in own.found)
    if (is_whole or is_save(os.path.basename(root.address))) and (there := root.look_beside()):  # noqa: PTH119
        address, folder = there
        index.beside[address] = ScannedFolder(folder, [], _read_pointers(root, address, folder))


def _describe_incomplete(address: str, name: str, folder: Folder, note: CheckpointNote) -> Checkpoint:
    reader = Reader(certainty="unknown", because=(CheckpointNote("unread", "it could not be read"),))
    path, size = f"{address}/{name}", folder.files[name][0]
    return Checkpoint(
        path=path, format="unknown", state="incomplete", problems=(note,), reader=reader, bytes=size
    )


def _read_pointers(root: Place, address: str, folder: Folder) -> dict[str, str]:
    """Return what the pointer files of a folder hold; what is no short text is none."""
    held = {}
    for name in layouts().pointers:
        if name in folder.files and folder.files[name][0] <= _LONGEST:
            try:
                held[name] = root.tree(address).read(name).decode().strip()
            except (OSError, UnicodeDecodeError):
                continue
    return held


def _whole(folder: Folder) -> bool:
    """Whether the files of a folder are one checkpoint, and not each one by itself."""
    names = folder.files
    if any(name.endswith(_WHOLE) for name in names):
        return True
    # model-00001-of-00002.safetensors, shard-00001-model-00001-of-00001.safetensors
    tensors = [name for name in names if name.endswith(_SAFETENSORS)]
    return any("-of-" in name or name.startswith("shard-") for name in tensors) or any(
        name.endswith(f"{_SAFETENSORS}.index.json") for name in names
    )


def _inspect_folder(root: Place, address: str) -> Checkpoint | None:
    try:
        return inspect(root.tree(address))
    except (
        MemoryError,
        RecursionError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        # A file that nobody thought of is one bad file: it must not end the scan of all others.
        problem = CheckpointNote("reader-failed", f"torchenv failed to read it ({type(error).__name__})")
        reader = Reader(certainty="unknown", because=(CheckpointNote("unread", "it could not be read"),))
        return Checkpoint(path=address, format="unknown", state="corrupt", problems=(problem,), reader=reader)
    except OSError as error:
        problem = CheckpointNote("unreadable", error.strerror or str(error))
        reader = Reader(certainty="unknown", because=(CheckpointNote("unread", "it could not be read"),))
        return Checkpoint(path=address, format="unknown", state="corrupt", problems=(problem,), reader=reader)


def _is_others(name: str, checkpoint: Checkpoint) -> bool:
    return name.endswith(_OTHERS_USE) and any(note.code == "not-torch" for note in checkpoint.problems)
