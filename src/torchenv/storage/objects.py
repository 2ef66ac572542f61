"""Object stores, and whatever else fsspec speaks to."""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, BinaryIO, cast

from torchenv.errors import InputError, ToolFailed
from torchenv.storage import Folder, Place, Transfer
from torchenv.storage.names import is_part
from torchenv.storage.tree import Tree

_BLOCK = 8 << 20
_PAUSE = 0.2  # seconds before what failed is asked again
_TIMES = ("LastModified", "mtime", "last_modified", "created")
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "abfs": "azure", "az": "azure"}


class ObjectPlace:
    """A prefix of an object store. There is no directory and no renaming: what is written last counts."""

    at_once = 16  # a request takes long, and the store answers many

    def __init__(self, files: Any, path: str, address: str) -> None:
        self.store = files
        self._path = path.rstrip("/")
        self.address = address.rstrip("/")
        self._listed: dict[str, dict[str, int]] = {}  # what a walk saw in each directory

    @classmethod
    def at(cls, address: str) -> ObjectPlace:
        """Find what speaks to the store of an address; raises `InputError` where that is not installed."""
        scheme = address.partition("://")[0]
        try:
            import fsspec

            store, path = fsspec.core.url_to_fs(address)
        except ImportError as error:
            extra = _EXTRAS.get(scheme)
            hint = f"install torchenv[{extra}]" if extra else f"install the fsspec package for {scheme}://"
            raise InputError(f"{address} needs a package that is not installed: {error}", hint=hint) from None
        except ValueError as error:
            raise InputError(f"{address}: {error}") from None
        return cls(store, path, address)

    def exists(self) -> bool:
        return bool(self._find_files())

    def walk(
        self,
        known: Mapping[str, Folder],  # noqa: ARG002 - one listing tells all
        apart_from: Collection[str] = (),  # noqa: ARG002 - there are no links
    ) -> Iterator[tuple[str, Folder]]:
        found = self._find_files()
        if not found:
            raise FileNotFoundError(errno.ENOENT, "nothing is there", self.address)
        folders: dict[str, Folder] = {self.address: Folder()}
        self._listed = {}
        for path, info in sorted(found.items()):
            directory, _, name = self._below(path).rpartition("/")
            at = f"{self.address}/{directory}" if directory else self.address
            size = int(info.get("size") or 0)
            if path != self._path:
                self._listed.setdefault(at, {})[name] = size
            if is_part(name):
                folders.setdefault(at, Folder()).files[name] = [size, _mark(info)]
        yield from sorted(folders.items())

    def look_beside(self) -> tuple[str, Folder] | None:
        return None

    def tree(self, address: str) -> Tree:
        path = self._path + address.removeprefix(self.address)
        listed = self._listed.get(address)
        if listed is not None:
            return ObjectTree(self.store, path, address, listed)
        above, _, name = address.rpartition("/")
        size = self._listed.get(above, {}).get(name)
        return ObjectTree(
            self.store, path, address, None if size is None else {name: size}, is_file=size is not None
        )

    def files(self) -> Mapping[str, int]:
        found = {self._below(path): int(info.get("size") or 0) for path, info in self._find_files().items()}
        return dict(sorted(found.items()))

    def modification_time(self) -> float:
        return max((_seconds(info) for info in self._find_files().values()), default=0.0)

    def open(self, name: str) -> BinaryIO:
        return cast(BinaryIO, self.store.open(self.key(name), "rb"))

    def draft(self) -> ObjectDraft:
        return ObjectDraft(self.store, self)

    def key(self, name: str) -> str:
        """Where one of its files is, as the store names it."""
        whole = self._path.rpartition("/")[2] == name and self.store.isfile(self._path)
        return self._path if whole else f"{self._path}/{name}"

    def _below(self, path: str) -> str:
        # The place may be one object.
        below = path.removeprefix(self._path).strip("/")
        return below or path.rpartition("/")[2]

    def _find_files(self) -> dict[str, dict[str, Any]]:
        self.store.invalidate_cache()
        try:
            found = self._list()
        except FileNotFoundError:
            return {}
        except OSError:
            raise
        except Exception as error:
            # Each store has errors of its own: botocore's have no class in common with those of others.
            said = str(error).partition("\n")[0] or type(error).__name__
            raise ToolFailed(f"{self.address} cannot be listed: {said}") from error
        return {path: info for path, info in found.items() if info.get("type") == "file"}

    def _list(self) -> dict[str, dict[str, Any]]:
        """List all below, and once more where that fails: stores turn a request down now and then."""
        for is_last in (False, True):
            try:
                found: dict[str, dict[str, Any]] = self.store.find(self._path, detail=True)
            except (FileNotFoundError, PermissionError):
                raise
            except Exception:
                if is_last:
                    raise
                time.sleep(_PAUSE)
                self.store.invalidate_cache()
            else:
                return found
        raise AssertionError("the last try returns or raises")


class ObjectTree:
    """The files of a checkpoint in an object store, `listed` where they are known without asking."""

    def __init__(
        self,
        files: Any,
        path: str,
        address: str,
        listed: Mapping[str, int] | None = None,
        *,
        is_file: bool = False,
    ) -> None:
        self._store = files
        self._path = path.rstrip("/")
        self._listed = listed
        self._file = is_file if listed is not None else bool(files.isfile(self._path))
        self.path = address

    def sizes(self) -> Mapping[str, int]:
        if self._listed is not None:
            return self._listed
        if self._file:
            return {self._path.rpartition("/")[2]: int(self._store.size(self._path))}
        listed = self._store.ls(self._path, detail=True)
        files = (item for item in listed if item.get("type") == "file")
        return {file["name"].rpartition("/")[2]: int(file.get("size") or 0) for file in files}

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        path = self._path if self._file else f"{self._path}/{name}"
        if length == 0:
            return b""
        end = None if length is None else start + length
        try:
            return bytes(self._store.cat_file(path, start=start or None, end=end))
        except OSError:
            raise
        except Exception as error:
            raise OSError(str(error).partition("\n")[0]) from error


class ObjectDraft:
    """Objects under the name that they will have: one that makes them a checkpoint comes last."""

    def __init__(self, files: Any, target: ObjectPlace) -> None:
        self._store = files
        self._target = target
        self._written: list[str] = []
        self._last: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> None:
        self._last[name] = data

    def share(self, source: Place, name: str, *, link: bool = False) -> Transfer | None:  # noqa: ARG002 - an object has one name
        if not (isinstance(source, ObjectPlace) and source.store is self._store):
            return None
        # The store copies it by itself.
        self._store.cp_file(source.key(name), self._key(name))
        return Transfer.COPIED

    def copy(self, source: Place, name: str, moved: Callable[[int], None] = lambda _: None) -> Transfer:
        with source.open(name) as reading, self._store.open(self._key(name), "wb") as writing:
            while block := reading.read(_BLOCK):
                writing.write(block)
                moved(len(block))
        return Transfer.COPIED

    def free_space(self) -> int | None:
        return None

    def sizes(self) -> Mapping[str, int]:
        there = {name: size for name, size in self._target.files().items() if name not in self._last}
        return {**there, **{name: len(data) for name, data in self._last.items()}}

    def read(self, name: str) -> bytes:
        return self._last[name]

    def finish(self) -> None:
        for name, data in self._last.items():
            key = self._key(name)
            self._store.pipe_file(key, data)
            self._store.invalidate_cache()
            if self._store.cat_file(key) != data:
                raise ToolFailed(f"{self._target.address}/{name} does not hold what was written to it")

    def abandon(self) -> None:
        for key in self._written:
            with suppress(Exception):
                self._store.rm_file(key)

    def _key(self, name: str) -> str:
        key = f"{self._target.key('')}{name}"
        self._written.append(key)
        return key


def _mark(info: Mapping[str, Any]) -> int:
    """Return a number that changes with the object: its time in nanoseconds, else one below zero."""
    if seconds := _seconds(info):
        return int(seconds * 1_000_000_000)
    told = info.get("ETag") or info.get("etag") or ""
    return -int.from_bytes(hashlib.sha256(str(told).encode()).digest()[:6], "big")


def _seconds(info: Mapping[str, Any]) -> float:
    told = next(
        (info[key] for key in ("LastModified", "mtime", "last_modified", "created") if key in info), 0
    )
    return told.timestamp() if isinstance(told, datetime) else float(told or 0)
