"""Find an environment that was built from a lock already; apart from the rest, since it must take no time."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection
from pathlib import Path

from torchenv.errors import WorkspaceError
from torchenv.system.disk import make_refusal
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment
from torchenv.workspace.store import InPlace, Moved, Store


def find_built(locks: Collection[str], manifest: Manifest, store: Store) -> Environment | None:
    """Find one that was built from one of these locks (by digest): the one in use, else the newest."""
    equal = [
        environment for environment in manifest.environments if environment.live and environment.lock in locks
    ]
    equal.sort(key=lambda item: (item.number == manifest.current, item.number), reverse=True)
    return next((item for item in equal if isinstance(store.locate(item), InPlace | Moved)), None)


def refuse_changed_lock(environment: Environment, store: Store, whole: Path) -> None:
    """Raise `WorkspaceError` where the kept lock is not the one that the environment was built from.

    `whole` is a file with the same lock, which a person can put in its place.
    """
    path = store.lock_path(environment.number)
    hint = f"put it back with `{shlex.join(['cp', str(whole), str(path)])}`"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise WorkspaceError(f"lock file `{path}` of environment {environment} is gone", hint=hint) from None
    except OSError as error:
        raise make_refusal(path, error) from error
    if environment.lock != f"sha256:{hashlib.sha256(content).hexdigest()}":
        raise WorkspaceError(f"lock file `{path}` was changed: its digest is not the recorded one", hint=hint)
