"""The profile's own commands, run in an environment as if it were activated."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from torchenv.actions.causes.texts import find_known_texts
from torchenv.actions.run import entry
from torchenv.errors import ToolFailed
from torchenv.system.process import Command, Completed, End
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store


def command_in(
    environment: Environment,
    store: Store,
    words: tuple[str, ...],
    directory: Path,
    environ: Mapping[str, str],
) -> Command:
    """Write the command that runs `words` in `directory` with the environment activated.

    Raises `ToolFailed` where there is no such program, neither in the environment nor on PATH.
    """
    change = entry(environment, store, environ)
    path = os.pathsep.join([str(change.scripts), *filter(None, [environ.get("PATH")])])
    # `./check.sh` is meant from the directory that the command runs in, not from where torchenv was started.
    named = str(directory / words[0]) if Path(words[0]).parent != Path() else words[0]
    program = shutil.which(named, path=path)
    if program is None:
        raise ToolFailed(
            f"could not start {words[0]} in environment {environment}: program not found",
            hint="install it in the environment, or fix the command in the profile",
        )
    # Whoever an environment belongs to, being tried leaves it as it is, byte code and all.
    env = {**change.set, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return Command((program, *words[1:]), cwd=directory, env=env, without=change.unset)


def could_not_start(completed: Completed) -> ToolFailed | None:
    """Return the error of a command that never ran, which says nothing of the environment."""
    if completed.end in (End.NOT_FOUND, End.NOT_STARTED):
        return ToolFailed(f"could not start `{completed.command.argv[0]}`: {completed.reason()}")
    return None


def failure(completed: Completed, timeout: float) -> str | None:
    """Describe in one line how a command failed; None where it did not."""
    if completed.end is End.OUT_OF_TIME:
        return f"it was stopped after {timeout:g} s"
    if completed.code == 0:
        return None
    known = next(find_known_texts(f"{completed.out}\n{completed.err}", ""), None)
    # Of the causes that are known by their text this one is no fault of the environment.
    advice = f": {known.message}; see `{known.cure}`" if known and known.code == "checkpoint-too-new" else ""
    return f"{completed.reason()} (code {completed.code}){advice}"


def transcript(completed: Completed) -> str:
    """Write down a command with all that it printed."""
    end = "out of time" if completed.end is End.OUT_OF_TIME else f"code {completed.code}"
    parts = [f"in {completed.command.cwd}", f"$ {' '.join(completed.command.argv)}"]
    parts += [text.rstrip("\n") for text in (completed.out, completed.err) if text.strip()]
    return "\n".join([*parts, f"[{end}]"]) + "\n"
