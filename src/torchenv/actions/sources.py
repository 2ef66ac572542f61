"""Where the files of a lock are: still on their index, at a mirror, or in a directory."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path

from packaging.version import Version

from torchenv.errors import IndexFailed, InputError
from torchenv.index.pages import Download, Fetch, ProjectPage, project
from torchenv.index.together import ask_together
from torchenv.lockfile.lock import Lock, LockedFile, LockedPackage
from torchenv.system.addresses import TorchIndex
from torchenv.system.looking import find_paths
from torchenv.system.values import frozen

# Pages and files that are asked for at the same time.
TOGETHER = 8

Say = Callable[[str], None]


@frozen
class Mirror:
    """Where to ask in place of the indexes of a lock, and for which backend of torch.

    Nothing stands in place of the `private` indexes: what is bound to them comes from there alone.
    """

    torch: TorchIndex | None = None
    packages: str | None = None
    backend: str = ""
    private: frozenset[str] = frozenset()

    def index_of(self, index: str | None, torch_index: str | None) -> str | None:
        """Return what stands in place of an index; `torch_index` is that of torch's packages in the lock."""
        if index is None or index in self.private:
            return index
        if index == torch_index:
            return (self.torch and self.torch.at(self.backend)) or index
        return self.packages or index


def refuse_vanished(lock: Lock, fetch: Fetch, say: Say) -> None:
    """Ask the indexes for every file of a lock before anything is built.

    Raises `IndexFailed` naming all that is gone or was replaced, with what remains; what was yanked is said.
    """
    pages = _pages([(package, package.index) for package in lock.packages if package.index], fetch)
    wrong = [said for package, page in pages for said in _wrong(package, page)]
    if wrong:
        raise IndexFailed(
            "; ".join(wrong),
            hint="take it from a mirror or with --wheels DIR, or run `torchenv lock --upgrade`",
        )
    for package, page in pages:
        listed = [page.file(file.name) for file in package.files] if page else []
        if listed and all(item is not None and item.yanked for item in listed):
            say(f"note: {package.name} {package.version} was yanked: `torchenv lock` chooses another")


def at_mirror(lock: Lock, mirror: Mirror, fetch: Fetch) -> Lock:
    """Return the same lock with the addresses of a mirror; raises `IndexFailed` where a file differs."""
    torch_index = find_torch_index(lock)
    moved = {package.name: mirror.index_of(package.index, torch_index) for package in lock.packages}
    asked = [
        (package, moved[package.name]) for package in lock.packages if moved[package.name] != package.index
    ]
    addresses = {file.sha256: file.url for package in lock.packages for file in package.files}
    for package, page in _pages(asked, fetch):
        for file in package.files:
            addresses[file.sha256] = _same_file(file, package, page, moved[package.name])
    return lock.elsewhere(addresses, {name: index for name, index in moved.items() if index})


def find_torch_index(lock: Lock) -> str | None:
    """Return the index of torch's own packages in a lock; None where torch is from the package index."""
    torch = next((package for package in lock.packages if package.name == "torch"), None)
    # Only PyTorch's index has wheels with a label: 2.15.0+cu132, 2.15.0+cpu.
    return torch.index if torch is not None and "+" in (torch.version or "") else None


def list_digests(
    index: str, name: str, version: str, fetch: Fetch, *, python: str, platform: str
) -> tuple[str, ...]:
    """Return the sha256 of each wheel of a release that fits; raises `IndexFailed` where there is none."""
    page = project(index, name, fetch)
    fitting = [
        wheel.filename
        for wheel in (page.of(Version(version)) if page else ())
        if wheel.fits(python, platform)
    ]
    listed = [page.file(filename) for filename in fitting] if page else []
    digests = tuple(sorted(file.sha256 for file in listed if file and file.sha256))
    if not digests:
        hint = "put it there, or name another index with TORCHENV_PACKAGE_INDEX"
        raise IndexFailed(f"{index} has no {name} {version} with a hash for {platform}", hint=hint)
    return digests


def from_directory(lock: Lock, directory: Path, target: str) -> Lock:
    """Return the same lock with its files in a directory.

    Raises `InputError` naming those that are missing, or that are not the files that were locked.
    """
    addresses: dict[str, str] = {}
    missing: list[str] = []
    for package in lock.packages:
        there = [file for file in package.files if os.path.isfile(directory / file.name)]
        if not there:
            missing += [file.name for file in package.files[:1]] or [f"{package.name} (from its repository)"]
        addresses |= {file.sha256: (directory / file.name).absolute().as_uri() for file in package.files}
    words = ["torchenv", "fetch", target, str(directory)]
    hint = f"bring them with `{shlex.join(words)}` where there is a network"
    if missing:
        raise InputError(f"{directory} does not hold {', '.join(missing)}", hint=hint)
    files = [file for package in lock.packages for file in package.files]
    found = _digests(directory, files)
    damaged = [
        file.name for file, digest in zip(files, found, strict=True) if digest not in (None, file.sha256)
    ]
    if damaged:
        raise InputError(
            f"in {directory} these are not the files that were locked: {', '.join(damaged)}", hint=hint
        )
    return lock.elsewhere(addresses, {})


def bring(
    lock: Lock, directory: Path, download: Download, say: Say, *, python: str, platform: str
) -> tuple[Path, ...]:
    """Bring what a lock needs on a platform into a directory, each file proven by its hash.

    A package has one file there: no sources beside its wheel. What is there already stays.

    Raises `IndexFailed` where one cannot be had or is another file, `InputError` for what has no file, and
    where the directory takes none.
    """
    without = [package.name for package in lock.packages if not package.files]
    if without:
        hint = "lock a released version of it"
        raise InputError(
            f"{', '.join(without)} comes from a repository and has no file to download", hint=hint
        )
    chosen = ((package, package.choose_file(python, platform)) for package in lock.packages)
    files = [file for package, fitting in chosen for file in ([fitting] if fitting else package.files)]
    # Several may bring the same file into a shared directory at once, each under a name of its own.
    draft = os.urandom(4).hex()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _clear_drafts(directory)
        found = _digests(directory, files)
        wanted = [file for file, digest in zip(files, found, strict=True) if digest != file.sha256]
        size = sum(item.size or 0 for item in wanted)
        say(f"downloading {len(wanted)} of {len(files)} files, {size >> 20} MiB")
        ask_together(lambda file: _bring(file, directory, draft, download), wanted, at_once=TOGETHER)
    except KeyboardInterrupt:
        for file in files:
            _beside(file, directory, draft).unlink(missing_ok=True)
        raise
    except OSError as error:
        hint = "name another directory, with room for them"
        raise InputError(f"{error.filename or directory}: {error.strerror or error}", hint=hint) from None
    return tuple(directory / file.name for file in files)


def count_brought(lock: Lock, directory: Path, *, python: str, platform: str) -> tuple[int, int]:
    """Return the bytes that `bring` has brought so far, and those of all; 0 where a size is unknown."""
    chosen = [(package, package.choose_file(python, platform)) for package in lock.packages]
    files = [file for package, fitting in chosen for file in ([fitting] if fitting else package.files)]
    drafts: dict[str, int] = {}
    for name, place in _list_drafts(directory):
        drafts[name] = max(drafts.get(name, 0), _measure(place))
    there = sum(_measure(directory / file.name) or drafts.get(file.name, 0) for file in files)
    sizes = [file.size for file in files]
    return there, 0 if None in sizes else sum(size or 0 for size in sizes)


def _measure(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _bring(file: LockedFile, directory: Path, draft: str, download: Download) -> None:
    beside = _beside(file, directory, draft)
    try:
        download(file.url, beside, file.size)
        got = _digest(beside)
        if got != file.sha256:
            raise IndexFailed(
                f"{file.name} is not the file that was locked: expected sha256 {file.sha256}, got {got}",
                hint="find out whether it was damaged on its way or replaced on the index",
            )
        beside.replace(directory / file.name)
    finally:
        beside.unlink(missing_ok=True)


def _beside(file: LockedFile, directory: Path, draft: str) -> Path:
    return directory / f".{file.name}.{draft}.part"


# .numpy-2.4.0-cp311-cp311-linux_x86_64.whl.0123abcd.part
_DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{8}\.part")
_LEFT = 24 * 3600.0  # seconds after which nobody writes it any more


def _list_drafts(directory: Path) -> list[tuple[str, Path]]:
    found = ((_DRAFT.fullmatch(path.name), path) for path in find_paths(directory, ".*.part"))
    return [(match[1], path) for match, path in found if match]


def _clear_drafts(directory: Path) -> None:
    """Delete what a run that was killed has left; that of another machine may still be written."""
    for _, path in _list_drafts(directory):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - _LEFT:
                path.unlink()


def _pages(
    asked: Sequence[tuple[LockedPackage, str | None]], fetch: Fetch
) -> list[tuple[LockedPackage, ProjectPage | None]]:
    pages = ask_together(lambda one: project(one[1] or "", one[0].name, fetch), asked, at_once=TOGETHER)
    return [(package, page) for (package, _), page in zip(asked, pages, strict=True)]


def _wrong(package: LockedPackage, page: ProjectPage | None) -> Iterator[str]:
    what = f"{package.name}=={package.version}"
    listed = {file.name: page.file(file.name) if page else None for file in package.files}
    if package.files and not any(listed.values()):
        first = package.files[0]
        remain = sorted(page.versions, reverse=True) if page else []
        left = f"it still has {', '.join(map(str, remain[:8]))}" if remain else "it has no other version"
        yield (
            f"{what} is no longer on {package.index}: {first.name} was at {first.url}"
            f" (sha256 {first.sha256}); {left}"
        )
    for file in package.files:
        now = listed[file.name]
        if now is not None and now.sha256 not in (None, file.sha256):
            yield (
                f"{what} was replaced on {package.index}: {file.name} has sha256 {now.sha256},"
                f" and {file.sha256} was locked"
            )


def _same_file(file: LockedFile, package: LockedPackage, page: ProjectPage | None, index: str | None) -> str:
    listed = page.file(file.name) if page else None
    if listed is None:
        raise IndexFailed(
            f"{index} does not have {file.name} of {package.name}", hint="upload it there first"
        )
    if listed.sha256 not in (None, file.sha256):
        raise IndexFailed(
            f"{index} has another {file.name}: expected sha256 {file.sha256}, got {listed.sha256}",
            hint="find out why the mirror changed it",
        )
    return listed.url


def _digests(directory: Path, files: Sequence[LockedFile]) -> list[str | None]:
    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(lambda file: _digest(directory / file.name), files))


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
