"""Flags, variables and defaults settled into one value before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

# What makes a directory a project, in the contract's words.
PROJECT_MARKS = ("torchenv.toml", ".torchenv", ".venv", "pyproject.toml", ".git")


def workspace(
    flag: str | None,
    environ: Mapping[str, str],
    *,
    cwd: Path,
    home: Path | None,
    exists: Callable[[Path], bool],
    user_data: Callable[[], Path],
) -> Path:
    """Return the workspace: `--root`, else `TORCHENV_HOME`, else the project's own, else the user's.

    `user_data` gives the user's directory for torchenv's data, and is asked only outside any project.
    """
    named = flag or environ.get("TORCHENV_HOME")
    if named:
        return cwd / _without_tilde(named, home)
    project = project_directory(cwd, home=home, exists=exists)
    return project / ".torchenv" if project else user_data()


def project_directory(cwd: Path, *, home: Path | None, exists: Callable[[Path], bool]) -> Path | None:
    """Return the nearest directory upwards that a project lives in; never the home directory or the root."""
    for directory in (cwd, *cwd.parents):
        if directory not in (home, directory.parent) and any(
            exists(directory / mark) for mark in PROJECT_MARKS
        ):
            return directory
    return None


def _without_tilde(path: str, home: Path | None) -> Path:
    # A variable set in a file of a scheduler, or a quoted flag, comes with its tilde.
    if home is not None and (path == "~" or path.startswith(("~/", "~\\"))):
        return home / path[2:]
    return Path(path)
