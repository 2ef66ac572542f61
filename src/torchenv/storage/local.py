"""Directories and files of this machine."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from torchenv.errors import InputError
from torchenv.storage import Folder, Place, Transfer
from torchenv.storage.names import SUFFIXES, is_part, is_skipped
from torchenv.storage.tree import LocalTree, Tree, leads_into_system, leads_out
from torchenv.system.clone import clone
from torchenv.system.disk import Disk

# A directory that changed a moment ago may change again under the same time.
_SETTLED = 2_000_000_000  # nanoseconds
_BLOCK = 8 << 20
# Directories behind links: a link may lead to all of a cluster's data.
_MOST_LINKED = 10_000

# In each directory that torchenv is writing; one without it is never deleted.
_MARK = ".torchenv-draft"


class LocalPlace:
    """A directory, or one file, of the local file system."""

    at_once = 1

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = str(path)

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def walk(
        self, known: Mapping[str, Folder], apart_from: Collection[str] = ()
    ) -> Iterator[tuple[str, Folder]]:
        root = os.path.realpath(self.path)
        if not os.path.isdir(root):
            yield self.address, Folder(files=_one_file(self.path))
            return
        now = time.time_ns()
        places = {root, *map(os.path.realpath, apart_from)}
        # Each with its path without links, where it lies behind one.
        waiting = [(self.address, "")]
        behind_links: set[str] = set()
        while waiting:
            path, real = waiting.pop()
            if real in behind_links:
                continue
            if real:
                behind_links.add(real)
            if len(behind_links) > _MOST_LINKED:
                closed = f"was not followed: over {_MOST_LINKED} directories lie behind links"
                yield path, Folder(closed=closed)
                return
            try:
                changed = os.stat(path).st_mtime_ns  # noqa: PTH116 - a Path for each of thousands is felt
                before = known.get(path)
                if before is None or before.changed != changed or not _as_before(path, before):
                    folder = _list_folder(path)
                    folder.changed = changed if changed < now - _SETTLED else 0
                else:
                    folder = before
            except OSError as error:
                if path == self.address:
                    raise
                if not isinstance(error, FileNotFoundError):  # gone meanwhile
                    yield path, Folder(closed=f"cannot be opened: {error.strerror or error}")
                continue
            yield path, folder
            between = os.sep
            for name in folder.links:
                linked = os.path.realpath(f"{path}{between}{name}")
                if all(_is_apart(linked, place) for place in places):
                    waiting.append((f"{path}{between}{name}", linked))
            waiting += [
                (f"{path}{between}{name}", f"{real}{between}{name}" if real else "")
                for name in folder.folders
            ]

    def look_beside(self) -> tuple[str, Folder] | None:
        above = os.path.dirname(self.address)  # noqa: PTH120
        try:
            return above, _list_folder(above)
        except OSError:
            return None

    def tree(self, address: str) -> Tree:
        return LocalTree(Path(address))

    def files(self) -> Mapping[str, int]:
        """Return every file below; raises `InputError` for a link that a copy could not hold."""
        if not os.path.isdir(self.path):
            return {self.path.name: self.path.stat().st_size}
        found = {}
        waiting = [self.path]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif (status := _plain_file(entry, self.path)) is None:
                        if entry.is_symlink():
                            raise _refuse_link(Path(entry.path))
                    else:
                        name = Path(entry.path).relative_to(self.path).as_posix()
                        found[name] = status.st_size
        return dict(sorted(found.items()))

    def modification_time(self) -> float:
        return max((self._at(name).stat().st_mtime for name in self.files()), default=0.0)

    def open(self, name: str) -> BinaryIO:
        return self._at(name).open("rb")

    def draft(self) -> LocalDraft:
        return LocalDraft(self.path)

    def file(self, name: str) -> Path:
        """Where one of its files is."""
        return self._at(name)

    def _at(self, name: str) -> Path:
        return self.path / name if os.path.isdir(self.path) else self.path


class LocalDraft:
    """A directory that is written beside its place, under a name that no scan looks at."""

    def __init__(self, path: Path) -> None:
        self._final = path
        self._disk = Disk()
        self._handle: int | None = None
        self._directory = self._make_directory()
        self._lock()
        self._disk.write(self._directory / _MARK, "torchenv writes a copy here, and deletes it unfinished\n")

    def write(self, name: str, data: bytes) -> None:
        path = self._room_for(name)
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def share(self, source: Place, name: str, *, link: bool = False) -> Transfer | None:
        if not isinstance(source, LocalPlace):
            return None
        path = self._room_for(name)
        origin = source.file(name).resolve()
        if clone(str(origin), str(path)):
            _keep_times(origin, path)
            return Transfer.CLONED
        path.unlink(missing_ok=True)
        if link:
            with suppress(OSError):
                path.hardlink_to(origin)
                return Transfer.LINKED
        return None

    def copy(self, source: Place, name: str, moved: Callable[[int], None] = lambda _: None) -> Transfer:
        path = self._room_for(name)
        with source.open(name) as reading, path.open("wb") as writing:
            while block := reading.read(_BLOCK):
                writing.write(block)
                moved(len(block))
            writing.flush()
            os.fsync(writing.fileno())
        if isinstance(source, LocalPlace):
            _keep_times(source.file(name), path)
        return Transfer.COPIED

    def free_space(self) -> int | None:
        return self._disk.free_space(self._directory)

    def sizes(self) -> Mapping[str, int]:
        files = LocalPlace(self._directory).files()
        return {name: size for name, size in files.items() if name != _MARK}

    def read(self, name: str) -> bytes:
        return (self._directory / name).read_bytes()

    def finish(self) -> None:
        self._disk.make_directory(self._final.parent)
        self._disk.delete(self._directory / _MARK)
        self._disk.rename(self._directory, self._final)
        self._unlock()

    def abandon(self) -> None:
        self._disk.delete(self._directory)
        self._unlock()

    def _make_directory(self) -> Path:
        for n in itertools.count(1):
            number = f".{n}" if n > 1 else ""
            directory = self._final.with_name(f".{self._final.name}{number}.torchenv-new")
            if _is_draft(directory):
                self._directory = directory
                self._lock()
                # What a run that was stopped has left is of no use.
                self._disk.delete(directory)
                self._unlock()
            # What has the name and no mark is someone else's: it stays, and another name is taken.
            if self._disk.make_new_directory(directory):
                return directory
        raise AssertionError  # there is always another number

    def _lock(self) -> None:
        # Windows opens no directory; there, a file that another run has open is in the way by itself.
        if os.name == "posix":
            self._handle = os.open(self._directory, os.O_RDONLY)
            # NFS locks nothing that is not open for writing, as no directory is.
            held: bool | None = None
            with suppress(OSError):
                held = self._disk.try_to_lock(self._handle)
            if held is False:
                self._unlock()
                hint = "wait for it to end"
                raise InputError(f"another run is writing {self._final}", hint=hint)

    def _unlock(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _room_for(self, name: str) -> Path:
        path = self._directory / name
        self._disk.make_directory(path.parent)
        return path


def _is_draft(directory: Path) -> bool:
    return not directory.is_symlink() and os.path.isfile(directory / _MARK)


def _one_file(path: Path) -> dict[str, list[int]]:
    status = path.stat()
    return {path.name: [status.st_size, status.st_mtime_ns]}


def _as_before(path: str, before: Folder) -> bool:
    # No name came or went, so its files need only be asked for their sizes: half of what listing costs.
    for name, stamp in before.files.items():
        try:
            status = os.lstat(f"{path}{os.sep}{name}")
        except FileNotFoundError:
            return False
        # A link has the size and time of what it leads to, which listing finds out.
        if status.st_size != stamp[0] or status.st_mtime_ns != stamp[1]:
            return False
    return True


def _list_folder(path: str) -> Folder:
    folder = Folder()
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if not is_skipped(entry.name):
                    folder.folders.append(entry.name)
            elif entry.is_symlink() and _leads_to_directory(entry):
                if not is_skipped(entry.name):
                    folder.links.append(entry.name)
            elif is_part(entry.name) and not _is_alias(entry) and (status := _plain_file(entry)) is not None:
                folder.files[entry.name] = [status.st_size, status.st_mtime_ns]
    folder.folders.sort(reverse=True)
    folder.links.sort(reverse=True)
    return folder


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link in a circle


def _is_apart(real: str, root: str) -> bool:
    """Whether a directory behind a link is neither found below `root` anyway nor holds `root` itself."""
    one, other = f"{real}{os.sep}", f"{root}{os.sep}"
    return not (one.startswith(other) or other.startswith(one) or leads_into_system(one))


def _is_alias(entry: os.DirEntry[str]) -> bool:
    """Whether a file is a second name of one that is found below: last.ckpt -> step=200.ckpt."""
    if not entry.is_symlink() or not entry.name.endswith(tuple(SUFFIXES)):
        return False
    real = os.path.realpath(entry.path)
    beside = f"{os.path.realpath(os.path.dirname(entry.path))}{os.sep}"  # noqa: PTH120
    return real.startswith(beside) and is_part(os.path.basename(real))  # noqa: PTH119


def _plain_file(entry: os.DirEntry[str], within: Path | None = None) -> os.stat_result | None:
    """Return the status of a file; None for what is none, leads out of a directory, or is gone meanwhile."""
    try:
        if not entry.is_file():
            return None
        if entry.is_symlink() and (
            leads_into_system(os.path.realpath(entry.path))
            or (within is not None and leads_out(Path(entry.path), within))
        ):
            return None
        return entry.stat()
    except OSError:
        # A link in a circle, or into what may not be looked at, is a file for nobody.
        return None


def _refuse_link(link: Path) -> InputError:
    name = str(link) if str(link).isprintable() else ascii(str(link))
    said = f"`{name}` is a link to a directory, or to what is missing or outside the checkpoint"
    return InputError(said, hint="replace the link with a copy of what it points to, then run again")


def _keep_times(origin: Path, path: Path) -> None:
    status = origin.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
