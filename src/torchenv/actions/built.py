"""Find an environment that was built from a lock already; apart from the rest, since it must take no time."""

from __future__ import annotations

from collections.abc import Collection

from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment
from torchenv.workspace.store import InPlace, Moved, Store


def find_built(locks: Collection[str], manifest: Manifest, store: Store) -> Environment | None:
    """Find one that was built from one of these locks (by digest): the one in use, else the newest."""
    equal = [each for each in manifest.environments if each.live and each.lock in locks]
    equal.sort(key=lambda each: (each.number == manifest.current, each.number), reverse=True)
    return next((each for each in equal if isinstance(store.locate(each), InPlace | Moved)), None)
