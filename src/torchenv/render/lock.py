"""What was locked, and what changed, as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchenv.actions.lock import Locked
    from torchenv.lockfile.lock import Lock

SCHEMA = "torchenv.lock/1"


def describe_locked(locked: Locked, before: Mapping[str, Lock], *, written: bool) -> str:
    """Describe each target with what was decided, and what changed in its lock."""
    return "\n".join(_lines(locked, before, written=written))


def encode_locked(locked: Locked, before: Mapping[str, Lock], *, written: bool) -> dict[str, Any]:
    """Return the `torchenv.lock/1` document."""
    return {
        "schema": SCHEMA,
        "written": written,
        "targets": [
            {
                "name": target.name,
                "platform": target.platform,
                "python": target.python,
                "torch": target.torch,
                "backend": target.backend,
                "file": target.file if target.lock else None,
                "lock": target.lock,
                "because": list(target.because),
                "unsupported": target.unsupported,
                "changes": list(changes(before.get(target.name), locked.locks[target.name]))
                if target.name in locked.locks
                else [],
            }
            for target in locked.set.targets
        ],
        "failed": {name: error.message for name, error in locked.failed.items()},
        "removed": sorted(before.keys() - locked.kept),
    }


def changes(before: Lock | None, after: Lock | None) -> Iterator[str]:
    """Describe what differs between two locks, a line a package: `+` came, `-` went, `~` changed."""
    was = {package.name: package for package in before.packages} if before else {}
    now = {package.name: package for package in after.packages} if after else {}
    for name in sorted(was.keys() | now.keys()):
        old, new = was.get(name), now.get(name)
        if old is None and new is not None:
            yield f"+ {name} {new.version or 'from its repository'}"
        elif new is None and old is not None:
            yield f"- {name} {old.version or 'from its repository'}"
        elif old is not None and new is not None:
            if old.version != new.version:
                yield f"~ {name} {old.version} -> {new.version}"
            elif {file.sha256 for file in old.files} != {file.sha256 for file in new.files}:
                yield f"~ {name} {new.version}: other files"
            elif old != new:
                yield f"~ {name} {new.version}: other addresses"


def _lines(locked: Locked, before: Mapping[str, Lock], *, written: bool) -> Iterator[str]:
    for target in locked.set.targets:
        if target.lock is None:
            yield f"{target.name}: unsupported: {target.unsupported}"
            continue
        lock = locked.locks.get(target.name)
        if lock is None:
            yield f"{target.name}: kept as it was, {target.file}"
            continue
        yield f"{target.name}: torch {target.torch}, {len(lock.packages)} packages, {target.file}"
        yield from (f"  {item}" for item in target.because)
        if target.name in before:
            changed = list(changes(before[target.name], lock))
            yield from (f"  {item}" for item in changed or ["nothing changed"])
    yield from (f"{name}: its lock is removed" for name in sorted(before.keys() - locked.kept))
    if not written:
        yield "nothing was written"
