"""Be in an environment: by its own path and never through `current`, in this process or in a shell."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchenv.environment.inspect import describe
from torchenv.errors import WorkspaceError
from torchenv.system.looking import find_paths
from torchenv.system.values import frozen
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Gone, InPlace, Moved, Replaced, Store


@frozen(kw_only=True)
class ProgramEntry:
    """What changes around a program that is in an environment; `scripts` comes first on its PATH."""

    directory: Path
    scripts: Path
    set: Mapping[str, str]
    unset: tuple[str, ...]


def entry(environment: Environment, store: Store, environ: Mapping[str, str]) -> ProgramEntry:
    """Return what activation would change; raises `WorkspaceError` where the environment is not there.

    PYTHONHOME and PYTHONPATH would lead its Python elsewhere. Devices that the plan left out are hidden,
    unless the user has said which are to be seen.
    """
    directory = directory_of(environment, store)
    python = describe(directory).interpreter
    if python is None:
        hint = "name a directory that has a Python: this one only holds packages for another"
        raise WorkspaceError(f"there is no Python in {directory}", hint=hint)
    if not os.path.isfile(python):
        # The shell would go on to the next one on its PATH, which is that of another environment.
        raise WorkspaceError(f"the interpreter of {environment} is gone: {python}", hint=_again(environment))
    named = _NAMED_BY.get(environment.layout or "venv")
    variables = {named: str(directory)} if named else {}
    astray = {"PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"} - variables.keys()
    if (around := environment.activation) is not None:
        astray.update(around.unset)
        if not any(name.endswith("_VISIBLE_DEVICES") for name in environ):
            variables.update(around.set)
    return ProgramEntry(
        directory=directory, scripts=python.parent, set=variables, unset=tuple(sorted(astray))
    )


def build_environ(change: ProgramEntry, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in which commands are those of the environment; the user's PYTHONPATH stays."""
    gone = set(change.unset) - {"PYTHONPATH"}
    kept = {name: value for name, value in environ.items() if name not in gone}
    path = os.pathsep.join([str(change.scripts), *filter(None, [environ.get("PATH")])])
    return {**kept, **change.set, "PATH": path}


def find_other_torch(environ: Mapping[str, str]) -> str | None:
    """Return the entry of PYTHONPATH from which another torch would be imported than the environment's."""
    entries = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    return next(
        (folder for folder in entries if os.path.isfile(Path(folder) / "torch" / "__init__.py")), None
    )


def replace_torchrun(words: Sequence[str], change: ProgramEntry) -> tuple[str, ...]:
    """Return the command with torchrun by its module where the environment has no script of that name.

    The next one on PATH would run the interpreter of another installation.
    """
    if words[0] != "torchrun" or find_paths(change.scripts, "torchrun*"):
        return tuple(words)
    return ("python", "-m", "torch.distributed.run", *words[1:])


@frozen
class OutsideProgram:
    """A program that would be taken from outside the environment; `is_python` says that a Python runs it."""

    path: Path
    is_python: bool


def find_outside(
    words: Sequence[str], change: ProgramEntry, environ: Mapping[str, str]
) -> OutsideProgram | None:
    """Return what a command would run that the environment lacks; None where it has it, or nothing has it.

    A path is what the user named and is not looked for.
    """
    import shutil  # 2 ms, which a rollback does not pay

    name = words[0]
    if "/" in name or os.sep in name or shutil.which(name, path=str(change.scripts)):
        return None
    found = shutil.which(name, path=environ.get("PATH", os.defpath))
    return OutsideProgram(Path(found), _is_python(Path(found))) if found else None


# The first lines of a script: #!/opt/conda/bin/python, #!/usr/bin/env python3, and pip's for long paths.
_PYTHON_SCRIPT = re.compile(rb"#!.*(python|pypy)|#!/bin/sh\n'''exec'")


def _is_python(program: Path) -> bool:
    """Whether a program is a Python, or a script of one: it would import from that one's packages."""
    if re.match(r"(python|pypy)[0-9.]*(\.exe)?$", program.name):
        return True
    try:
        with program.open("rb") as file:
            return bool(_PYTHON_SCRIPT.match(file.read(256)))
    except OSError:
        return False


def directory_of(environment: Environment, store: Store) -> Path:
    """Find an environment on the disk; raises `WorkspaceError` where it is not what was recorded."""
    match store.locate(environment):
        case InPlace(path=path) | Moved(path=path):
            return path
        case Replaced(path=path):
            hint = f"adopt it with `{shlex.join(['torchenv', 'adopt', str(path)])}` if it is the right one"
            raise WorkspaceError(f"{path} is another environment than the recorded {environment}", hint=hint)
        case Gone(path=path):
            raise WorkspaceError(f"{path} is no longer on disk", hint=_again(environment))


def _again(environment: Environment) -> str | None:
    again = f"rebuild it with `torchenv restore {environment.number}`"
    return again if environment.lock else None


# The variable by which tools know the environment that they are in; a system's Python has none.
_NAMED_BY = {"venv": "VIRTUAL_ENV", "conda": "CONDA_PREFIX"}
