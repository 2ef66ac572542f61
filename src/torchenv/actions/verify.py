"""Prove that an environment is as it was built or adopted."""

from __future__ import annotations

from torchenv.actions.run import directory_of
from torchenv.environment.fingerprint import Fingerprint
from torchenv.environment.inspect import describe
from torchenv.environment.verify import FileFinding, Progress, verify
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store


def verify_environment(environment: Environment, store: Store, progress: Progress) -> tuple[FileFinding, ...]:
    """Read all of an environment and name what is not as it was; raises `WorkspaceError` where it is gone."""
    kept = store.fingerprint_path(environment.number)
    before = None
    if kept.is_file():
        before = Fingerprint.parse(kept.read_text(encoding="utf-8", errors="surrogateescape"))
    installation = describe(directory_of(environment, store))
    return verify(installation, base=environment.python, before=before, progress=progress)
