"""The fingerprint of an environment: one line a file, so that a change by anyone shows and can be named."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from torchenv.environment.inspect import Installation, Layout, read_recorded_digests
from torchenv.system.values import frozen

# Other environments and the cache of a conda base lie inside it, and are none of its own.
_CONDA_OTHERS = frozenset({"envs", "pkgs"})


@frozen
class FileEntry:
    """One file. `content` is `sha256:…`, `-> target` of a link, or empty where RECORD vouches for it."""

    size: int
    mtime_ns: int
    mode: int
    content: str

    def __str__(self) -> str:
        return f"{self.size} {self.mtime_ns} {self.mode:o} {self.content or '-'}"


@dataclass(frozen=True)
class Fingerprint:
    """What was in an environment; `entries` go by paths relative to it, with forward slashes."""

    entries: Mapping[str, FileEntry]

    @cached_property
    def text(self) -> str:
        """One line a file, in the order of their paths: what is kept in order to name a difference later."""
        return "".join(f"{path}\t{entry}\n" for path, entry in self.entries.items())

    @cached_property
    def digest(self) -> str:
        """The digest of the whole, `sha256:…`."""
        return f"sha256:{sha256(self.text.encode('utf-8', 'surrogateescape')).hexdigest()}"

    @property
    def count(self) -> int:
        """How many files it covers."""
        return len(self.entries)

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """Read back what `text` gave."""
        return cls(dict(map(_parse_line, text.split("\n")[:-1])))


@frozen
class FileDifference:
    """One file that is not as it was: `what` is added, missing, changed, touched or mode."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {_SAID[self.what]}"


# Each file has one line, whatever its name.
_ONE_LINE = {ord("\t"): "\\t", ord("\n"): "\\n"}

_SAID = {
    "added": "was added",
    "missing": "is missing",
    "changed": "was changed",
    "touched": "was rewritten",
    "mode": "has changed permissions",
}


def fingerprint(installation: Installation) -> Fingerprint:
    """Return how every file is, byte-code caches aside; what a RECORD vouches for is not read."""
    # 3 ms, which a rollback does not pay: it asks only for the sizes.
    from concurrent.futures import ThreadPoolExecutor

    vouched = read_recorded_digests(installation)
    found = dict(files_of(installation))
    read = [path for path, status in found.items() if stat.S_ISREG(status.st_mode) and path not in vouched]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        contents = dict(zip(read, pool.map(content, read), strict=True))
    base = installation.path
    entries = {
        relative(path, base): FileEntry(
            size=0 if stat.S_ISLNK(status.st_mode) else status.st_size,
            mtime_ns=0 if stat.S_ISLNK(status.st_mode) else status.st_mtime_ns,
            mode=stat.S_IMODE(status.st_mode),
            content=link(path) if stat.S_ISLNK(status.st_mode) else contents.get(path, ""),
        )
        for path, status in found.items()
    }
    return Fingerprint(dict(sorted(entries.items())))


def sum_sizes(text: str) -> int:
    """Return the bytes of all files that the text of a fingerprint lists, without reading the rest of it."""
    return sum(int(line.rpartition("\t")[2].partition(" ")[0]) for line in text.split("\n")[:-1])


def differences(before: Fingerprint, after: Fingerprint) -> tuple[FileDifference, ...]:
    """Name each file that differs, in the order of their paths."""
    paths = sorted(before.entries.keys() | after.entries.keys())
    compared = ((path, _difference(before.entries.get(path), after.entries.get(path))) for path in paths)
    return tuple(FileDifference(path, what) for path, what in compared if what)


def files_of(installation: Installation) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every file and link of an environment but byte-code caches; a link to a directory is a link."""
    waiting = [str(root) for root in roots(installation)]
    while waiting:
        # A directory that may not be read, or that vanishes under the eye, is empty for this user.
        with suppress(PermissionError, FileNotFoundError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        waiting.append(entry.path)
                elif not entry.name.endswith(".pyc"):
                    with suppress(FileNotFoundError):
                        yield entry.path, entry.stat(follow_symlinks=False)


def content(path: str) -> str:
    """Return the digest of a file, `sha256:…`; one that this user may not read is `unreadable`."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except OSError:
        return "unreadable"
    digest = sha256()
    try:
        while block := os.read(handle, 1 << 20):
            digest.update(block)
    finally:
        os.close(handle)
    return f"sha256:{digest.hexdigest()}"


def link(path: str) -> str:
    """Return what stands for the content of a link: where it leads."""
    return "-> " + os.readlink(path).translate(_ONE_LINE)  # noqa: PTH115 - 20,000 paths are strings here


def relative(path: str, base: Path) -> str:
    """Return a path as the fingerprint writes it; what lies outside the environment keeps its whole path."""
    inside = path.removeprefix(f"{base}{os.sep}")
    return inside.replace(os.sep, "/").translate(_ONE_LINE)


def roots(installation: Installation) -> Iterable[Path]:
    """Return the directories whose every file belongs to an environment."""
    match installation.layout:
        case Layout.VENV:
            return (installation.path,)
        case Layout.CONDA:
            return tuple(
                directory
                for directory in installation.path.iterdir()
                if os.path.isdir(directory) and directory.name not in _CONDA_OTHERS
            )
        case Layout.SYSTEM | Layout.USER:
            # A prefix such as /usr is a whole machine; only what pip could change in it is looked at.
            return installation.site_packages


def _difference(before: FileEntry | None, after: FileEntry | None) -> str | None:
    match before, after:
        case None, _:
            return "added"
        case _, None:
            return "missing"
        case FileEntry(), FileEntry() if (before.size, before.content) != (after.size, after.content):
            return "changed"
        case FileEntry(), FileEntry() if before.mode != after.mode:
            return "mode"
        case FileEntry(), FileEntry() if before.mtime_ns != after.mtime_ns:
            # Read again, it may well be the same: who vouches for it is RECORD, not its time.
            return "touched"
    return None


def _parse_line(line: str) -> tuple[str, FileEntry]:
    path, _, rest = line.rpartition("\t")
    size, mtime_ns, mode, kept = rest.split(" ", 3)
    return path, FileEntry(int(size), int(mtime_ns), int(mode, 8), "" if kept == "-" else kept)
