"""Run something in an environment, by its own path and never through `current`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torchenv.errors import WorkspaceError
from torchenv.installers import interpreter_in
from torchenv.record import Environment
from torchenv.store import Gone, InPlace, Moved, Replaced, Store


def directory_of(environment: Environment, store: Store) -> Path:
    """Find an environment on the disk; raises `WorkspaceError` where it is not what was recorded."""
    match store.locate(environment):
        case InPlace(path=path) | Moved(path=path):
            return path
        case Replaced(path=path):
            hint = "adopt it with `torchenv adopt` if it is what you mean"
            raise WorkspaceError(
                f"{path} holds another environment than the recorded {environment}", hint=hint
            )
        case Gone(path=path):
            again = f"`torchenv restore {environment.number}` builds it again from its lock"
            raise WorkspaceError(f"{path} is no longer on disk", hint=again if environment.lock else None)


def activated(environment: Environment, store: Store, environ: Mapping[str, str]) -> dict[str, str]:
    """Give the variables in which commands are those of the environment, as activation would.

    PYTHONHOME and PYTHONPATH would lead its Python elsewhere and are taken out.
    """
    directory = directory_of(environment, store)
    kept = {name: value for name, value in environ.items() if name not in {"PYTHONHOME", "PYTHONPATH"}}
    scripts = str(interpreter_in(directory).parent)
    kept["PATH"] = os.pathsep.join([scripts, *filter(None, [environ.get("PATH")])])
    kept["VIRTUAL_ENV"] = str(directory)
    return kept
