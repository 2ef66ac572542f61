"""Where checkpoints lie: directories of this machine, and object stores through fsspec."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import BinaryIO, Protocol

from torchenv.storage.tree import Tree

Progress = Callable[[int, int], None]  # bytes done, bytes in all


class Transfer(Enum):
    """How a file came to its second place."""

    CLONED = "cloned"
    LINKED = "linked"
    COPIED = "copied"


@dataclass(slots=True)
class Folder:
    """A directory with the files in it that a checkpoint may consist of.

    `files` gives size and time of change of each, as a list of two: equal lists, equal file. `changed` is
    when names were added or removed; 0 where that is not known or too recent to tell. `folders` are in it,
    and `links` lead to others. `closed` says what kept it from being looked into: "cannot be opened: …".
    """

    changed: int = 0
    files: dict[str, list[int]] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    closed: str = ""


class Draft(Protocol):
    """A directory that is being written and has its name only once it is whole."""

    def write(self, name: str, data: bytes) -> None:
        """Put a file there."""

    def share(self, source: Place, name: str, *, link: bool = False) -> Transfer | None:
        """Bring a file there without writing its bytes: cloned, else with `link` hard-linked; None: neither.

        A clone changes with nothing. A link is the same file under a second name: who writes in one changes
        the other.
        """

    def copy(self, source: Place, name: str, moved: Callable[[int], None] = lambda _: None) -> Transfer:
        """Bring a file there byte by byte; `moved` gets the bytes of each block."""

    def free_space(self) -> int | None:
        """Return the bytes that are free there; None where nobody knows."""

    def sizes(self) -> Mapping[str, int]:
        """Return the files that are there so far, with their sizes in bytes."""

    def read(self, name: str) -> bytes:
        """Return one of the files that were written."""

    def finish(self) -> None:
        """Return it its name; raises `ToolFailed` where that did not come out as it was written."""

    def abandon(self) -> None:
        """Leave nothing of it behind."""


class Place(Protocol):
    """A directory or one file, here or in an object store. Every method may raise `OSError`."""

    @property
    def at_once(self) -> int:
        """How many of its checkpoints are best read at the same time."""

    @property
    def address(self) -> str:
        """What leads to it: a whole path, or an address such as s3://bucket/runs/a."""

    def exists(self) -> bool:
        """Whether there is anything."""

    def walk(
        self, known: Mapping[str, Folder], apart_from: Collection[str] = ()
    ) -> Iterator[tuple[str, Folder]]:
        """Yield it and every directory below with its address; what is `known` is only looked at for change.

        A directory that is as it is known is given as the same object. A link to a directory is followed, but
        for one that lies below anyway or in another place of `apart_from`: nothing is given twice.
        """

    def look_beside(self) -> tuple[str, Folder] | None:
        """Return the address and the listing of the directory that it lies in; None where that costs much."""

    def tree(self, address: str) -> Tree:
        """Return the files of a checkpoint below."""

    def files(self) -> Mapping[str, int]:
        """Return every file below by its name with `/` between the parts, and its size in bytes.

        Raises `InputError` for a link that leads to a directory or out of this place: nothing is left out.
        """

    def modification_time(self) -> float:
        """Return when the newest of its files was changed, in seconds since 1970."""

    def open(self, name: str) -> BinaryIO:
        """Open one of `files` for reading."""

    def draft(self) -> Draft:
        """Begin to write a directory that will be at this place."""


def place(address: str | Path) -> Place:
    """Return the place that an address leads to; a path is taken as it is.

    Raises `InputError` where what speaks to its object store is not installed.
    """
    text = str(address)
    scheme, found, rest = text.partition("://")
    # C:\runs has no `://`, and file:///runs is a path like others.
    if found and scheme != "file":
        from torchenv.storage.objects import ObjectPlace

        return ObjectPlace.at(text)
    from torchenv.storage.local import LocalPlace

    return LocalPlace(Path(rest if found else text))


def is_remote(address: str) -> bool:
    """Whether an address leads to an object store."""
    return "://" in address and not address.startswith("file://")
