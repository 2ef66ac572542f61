"""Whether an environment could be built again: which files of its lock are no longer where they lay."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from packaging.version import Version

from torchenv.errors import ToolFailed
from torchenv.index.http import Missing
from torchenv.index.pages import Fetch
from torchenv.index.together import ask_together
from torchenv.lockfile.lock import Lock, LockedFile, LockedPackage
from torchenv.system.values import frozen
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store


@frozen
class Lost:
    """A package of which no file is where the lock says, with the file that was installed."""

    package: LockedPackage
    file: LockedFile

    def __str__(self) -> str:
        where = f"it was at {self.file.url}, sha256 {self.file.sha256}"
        return (
            f"{self.package.name}=={self.package.version} can no longer be fetched: {self.file.name}; {where}"
        )


@frozen
class Fetchable:
    """What the index answered for a lock; `unknown` counts the packages for which nothing did."""

    lost: tuple[Lost, ...] = ()
    unknown: int = 0


def fetchable(lock: Lock, head: Fetch) -> Fetchable:
    """Ask for each file of a lock whether it is still there; `head` only looks, and fetches nothing.

    A host that does not answer is asked once.
    """
    packages = [package for package in lock.packages if package.files]
    first = {_host(package): package for package in packages}
    answered = ask_together(lambda package: _is_there(package, head), first.values(), at_once=16)
    silent = {host for host, answer in zip(first, answered, strict=True) if answer is None}

    def ask(package: LockedPackage) -> bool | None:
        return None if _host(package) in silent else _is_there(package, head)

    there = ask_together(ask, packages, at_once=16)
    answers = list(zip(packages, there, strict=True))
    lost = tuple(Lost(package, package.files[0]) for package, found in answers if found is False)
    return Fetchable(lost, unknown=there.count(None))


def irreplaceable(
    environment: Environment, store: Store, head: Fetch, say: Callable[[str], None]
) -> str | None:
    """Explain why an environment cannot be built again from its lock; None where it can."""
    path = store.lock_path(environment.number)
    if not os.path.isfile(path):
        return f"its lock file {path} is missing"
    lock = Lock.parse(path.read_text(encoding="utf-8", errors="replace"), str(path))
    for item in expiring(lock):
        say(f"note: {item}")
    found = fetchable(lock, head)
    if found.unknown:
        say(f"note: for {found.unknown} packages of {environment} no index said whether they are still there")
    return "; ".join(map(str, found.lost)) or None


def expiring(lock: Lock) -> tuple[str, ...]:
    """Name the development builds of a lock, which their index drops after some weeks."""
    return tuple(_expiring(lock))


def _expiring(lock: Lock) -> Iterator[str]:
    for name, version in lock.versions.items():
        if Version(version).is_devrelease:
            yield f"{name} {version} is a development build: its wheel expires, and its lock file with it"


def _host(package: LockedPackage) -> str:
    return urlsplit(package.files[0].url).netloc


def _is_there(package: LockedPackage, head: Fetch) -> bool | None:
    try:
        return any(not isinstance(head(file.url), Missing) for file in package.files)
    except ToolFailed:
        return None
