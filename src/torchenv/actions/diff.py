"""What differs between two environments: packages, backend and interpreter."""

from __future__ import annotations

import os
from collections.abc import Mapping

from torchenv.actions.run import directory_of
from torchenv.environment.inspect import canonical, describe, distributions
from torchenv.errors import NothingSuits
from torchenv.lockfile.lock import Lock
from torchenv.system.values import frozen
from torchenv.workspace.records import Environment, State
from torchenv.workspace.store import Store


@frozen
class PackageChange:
    """One thing that differs; None where one side does not have it."""

    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.name} {self.after}"
        if self.after is None:
            return f"- {self.name} {self.before}"
        return f"  {self.name} {self.before} -> {self.after}"


@frozen(kw_only=True)
class Differences:
    """How the second of two environments differs from the first."""

    python: PackageChange | None
    backend: PackageChange | None
    packages: tuple[PackageChange, ...]


def diff(before: Environment, after: Environment, store: Store) -> Differences:
    """Compare what is installed; of a removed environment, what its lock holds."""
    here, there = packages(before, store), packages(after, store)
    names = sorted(here.keys() | there.keys())
    changes = (_change(name, here.get(name), there.get(name)) for name in names)
    return Differences(
        python=_change("python", before.python.version, after.python.version),
        backend=_change("backend", before.backend, after.backend),
        packages=tuple(filter(None, changes)),
    )


def packages(environment: Environment, store: Store) -> Mapping[str, str]:
    """Return the version of each package by its one spelling; torch's with its label."""
    if environment.state is not State.REMOVED:
        installation = describe(directory_of(environment, store))
        found = {
            canonical(distribution.name): distribution.version for distribution in distributions(installation)
        }
        return found | ({"torch": installation.torch} if installation.torch else {})
    path = store.lock_path(environment.number)
    if not os.path.isfile(path):
        raise NothingSuits(f"environment {environment} was removed, and it has no lock file")
    versions = Lock.parse(path.read_text(encoding="utf-8", errors="replace"), str(path)).versions
    # The default package index names no label, and the record does.
    torch = environment.torch
    if torch is not None and versions.get("torch") == torch.partition("+")[0]:
        return {**versions, "torch": torch}
    return versions


def _change(name: str, before: str | None, after: str | None) -> PackageChange | None:
    return None if before == after else PackageChange(name, before, after)
