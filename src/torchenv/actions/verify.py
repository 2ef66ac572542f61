"""Prove that an environment is as it was built or adopted."""

from __future__ import annotations

import os

from torchenv.actions.run import directory_of
from torchenv.environment.findings import EnvironmentFinding, find_wrong
from torchenv.environment.fingerprint import Fingerprint
from torchenv.environment.inspect import describe
from torchenv.environment.verify import Progress, verify
from torchenv.errors import TorchenvError
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store


def verify_environment(
    environment: Environment, store: Store, progress: Progress
) -> tuple[EnvironmentFinding, ...]:
    """Read all of an environment and name what is not as it was; raises `WorkspaceError` where it is gone."""
    kept = store.fingerprint_path(environment.number)
    before = None
    message = "is missing, though the workspace has its digest"
    if os.path.isfile(kept):
        try:
            before = Fingerprint.parse(kept.read_text(encoding="utf-8", errors="surrogateescape"))
        except (OSError, ValueError):
            message = "is damaged: files cannot be compared with it"
    installation = describe(directory_of(environment, store))
    found = verify(installation, base=environment.python, before=before, progress=progress)
    if before is None and environment.fingerprint is not None:
        return (EnvironmentFinding("fingerprint-gone", str(kept), message), *found)
    return found


def find_wrong_in(environment: Environment, store: Store) -> tuple[EnvironmentFinding, ...]:
    """Return what the files of a recorded environment show to be wrong; nothing of one that is not there."""
    try:
        return find_wrong(describe(directory_of(environment, store)))
    except TorchenvError:
        return ()
