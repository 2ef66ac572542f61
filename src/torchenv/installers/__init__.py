"""What torchenv asks of an installer, in its own words: lock, create, install."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torchenv.profile.model import PrivateIndex
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from torchenv.installers.cache import UvCache
    from torchenv.lockfile.lock import Lock


@frozen(kw_only=True)
class LockRequest:
    """What a lock is to hold, for one platform and one Python.

    `requirements` are torch's family, exact and with the label of the build where `torch_index` is
    given ("torch==2.15.0+cu132"); `packages` everything else. `overrides` stand in place of what any
    package asks of their names. `family` are the names that come from
    `torch_index` alone, also where only another package asks for them (triton-rocm, rocm, …): the
    catalogue knows them. Every name outside it never comes from there; nvidia-* are best left out,
    since the package index keeps what PyTorch's index drops. An index that is None is the default
    package index. `platform` is linux-x86_64, windows-x86_64, darwin-arm64, …; `macos` the oldest
    macOS that is to be served. Files uploaded on `exclude_newer` or later are left out, torch's
    family aside, since PyTorch's index gives no dates. `kept` is the text of the lock that was made
    before: its versions stay where they still fit, but for the names in `upgrade` and for what was
    yanked since. `bound` are names of `family` that the same request is known to need. `private` are
    indexes of one's own, each bound to names. Without `builds` nothing is built from source, nor is a folder
    or a repository looked at. `asked_by` says which line of which file asks for a package.
    """

    requirements: tuple[str, ...]
    packages: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    torch_index: str | None = None
    package_index: str | None = None
    family: frozenset[str] = frozenset()
    python: str
    free_threaded: bool = False
    interpreter: Path | None = None
    platform: str
    macos: str | None = None
    exclude_newer: date | None = None
    kept: str | None = None
    upgrade: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    private: tuple[PrivateIndex, ...] = ()
    builds: bool = True
    asked_by: Mapping[str, str] = field(default_factory=dict)

    def home_of(self, name: str) -> str | None:
        """Return the name in `homes` of the index that a package comes from alone; None if it has none."""
        for number, index in enumerate(self.private, start=1):
            if any(fnmatchcase(name, pattern) for pattern in index.packages):
                return f"private-{number}"
        if self.torch_index and (name in self.family or name in map(name_of, self.requirements)):
            return "torch"
        return None

    @property
    def homes(self) -> dict[str, str]:
        """The indexes that hold packages of their own, by name, with their addresses."""
        found = {"torch": self.torch_index} if self.torch_index else {}
        private = {f"private-{number}": index.url for number, index in enumerate(self.private, start=1)}
        return {**found, **private}


class Installer(Protocol):
    """What may be swapped; every verb raises `ToolFailed` in the user's words."""

    def lock(self, request: LockRequest) -> Lock:
        """Choose every package, with its files and hashes; raises `NothingSuits` on a conflict."""
        ...

    @property
    def cache(self) -> UvCache | None:
        """Where what is fetched lies first; None where nothing is known of it."""
        ...

    def fetch_python(self, python: str) -> Path:
        """Fetch an interpreter ("3.12", "3.14t") and say where it is."""
        ...

    def create(self, environment: Path, python: Path) -> None:
        """Make an empty environment at a path that does not exist yet."""
        ...

    def install(self, environment: Path, lock: Path) -> None:
        """Put exactly what the lock holds into an empty environment, each file by its hash."""
        ...


def interpreter_in(environment: Path) -> Path:
    """Return the path of the Python of an environment on this system."""
    if os.name == "nt":
        return environment / "Scripts" / "python.exe"
    return environment / "bin" / "python"


@cache
def name_of(requirement: str) -> str:
    """Return the normalised name that a PEP 508 requirement begins with."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    return canonicalize_name(Requirement(requirement).name)
