"""Flags, variables and places settled into one value before anything starts.

The variables of torchenv are read here, those that name indexes in `index.mirrors`. A profile is read on
demand: one with a mistake in it must not take the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchenv.errors import InputError
from torchenv.system.looking import resolve_parents

if TYPE_CHECKING:
    from argparse import Namespace

PROJECT_FILE = "torchenv.toml"

# What makes a directory a project, in the contract's words.
PROJECT_MARKS = (PROJECT_FILE, ".torchenv", ".venv", "pyproject.toml", ".git")


class Settings(NamedTuple):
    """What holds for one run of the command line; a flag beats a variable beats what the profile says.

    `root` is the workspace, `named_root` the words of `--root` if it was given. `profile` is the name or the
    path of the profile that was asked for, `profile_path` the file it is read from, None for one that comes
    with torchenv. `catalogue` is a catalogue file that was named, `named_catalogue` only that of the flag;
    `installer` is the flag's or the variable's.
    """

    cwd: Path
    home: Path | None
    environ: Mapping[str, str]
    system: str
    project: Path | None
    root: Path
    named_root: str | None
    profile: str | None
    profile_path: Path | None
    catalogue: Path | None
    named_catalogue: Path | None
    installer: str | None
    python_mirror: str | None
    is_offline: bool
    is_only_wheels: bool

    @property
    def checkpoint_system(self) -> str:
        """This system by the name that checkpoints and hosts know it by."""
        return {"win32": "windows", "darwin": "darwin"}.get(self.system, "linux")

    @property
    def platform(self) -> str:
        """The platform of this machine by the catalogue's name for it, such as `linux-x86_64`."""
        from platform import machine

        from torchenv.host.model import name_platform

        return name_platform(self.checkpoint_system, machine())

    @property
    def node_directory(self) -> Path:
        """Where a packed environment is unpacked on this machine: in TMPDIR, a directory of this user."""
        import os
        from tempfile import gettempdir

        user = getattr(os, "getuid", lambda: 0)()
        return self.cwd / (self.environ.get("TMPDIR") or gettempdir()) / f"torchenv-packed-{user}"

    @property
    def is_root_named(self) -> bool:
        """Whether the user named the workspace, by the flag or the variable."""
        return bool(self.named_root or self.environ.get("TORCHENV_HOME"))

    @property
    def command(self) -> tuple[str, ...]:
        """The words that a command which follows begins with, so that it finds the same workspace."""
        return ("torchenv", "--root", self.named_root) if self.named_root else ("torchenv",)

    @property
    def program(self) -> str:
        """The same words as a shell reads them."""
        import shlex

        return shlex.join(self.command)


def read_settings(flags: Namespace, environ: Mapping[str, str], cwd: Path, system: str) -> Settings:
    """Settle the flags that several commands share and the variables; raises `InputError`."""
    home = find_home(environ, system)
    project = find_project(cwd, home=home, exists=Path.exists)
    profile = getattr(flags, "profile", None) or environ.get("TORCHENV_PROFILE") or None
    catalogue = getattr(flags, "catalogue", None) or environ.get("TORCHENV_CATALOGUE")
    named_root: str | None = getattr(flags, "root", None)
    return Settings(
        cwd=cwd,
        home=home,
        environ=environ,
        system=system,
        project=project,
        root=find_workspace(
            named_root or environ.get("TORCHENV_HOME"),
            project,
            cwd=cwd,
            home=home,
            user_data=lambda: _find_user_data(environ, system, home),
        ),
        named_root=named_root,
        profile=profile,
        profile_path=_find_profile(profile, project, cwd),
        catalogue=cwd / catalogue if catalogue else None,
        named_catalogue=cwd / flags.catalogue if getattr(flags, "catalogue", None) else None,
        installer=getattr(flags, "installer", None) or _read_installer(environ),
        # From where uv fetches an interpreter.
        python_mirror=environ.get("UV_PYTHON_INSTALL_MIRROR") or None,
        is_offline=getattr(flags, "offline", False),
        is_only_wheels=getattr(flags, "only_wheels", False),
    )


def find_home(environ: Mapping[str, str], system: str) -> Path | None:
    """Return the user's home directory, by the variable or by the system's list of users."""
    named = environ.get("USERPROFILE" if system == "win32" else "HOME")
    if named:
        # What begins from wherever a command is typed is nobody's home.
        return Path(named) if Path(named).is_absolute() else None
    try:
        return Path.home()
    except RuntimeError:
        return None


def find_workspace(
    named: str | None,
    project: Path | None,
    *,
    cwd: Path,
    home: Path | None,
    user_data: Callable[[], Path],
) -> Path:
    """Return the workspace: the one named, else the project's own, else the user's.

    `user_data` returns the user's directory for torchenv's data, and is asked only outside any project.
    """
    if named:
        return resolve_parents(cwd / _expand_tilde(named, home))
    return project / ".torchenv" if project else user_data()


def find_user_state(settings: Settings) -> Path | None:
    """Return the user's own folder for what torchenv remembers; None for a user without a home directory."""
    if settings.system in {"win32", "darwin"}:
        from platformdirs import user_state_path

        return user_state_path("torchenv", appauthor=False)
    return _find_base_directory("XDG_STATE_HOME", ".local/state", settings.environ, settings.home)


def _find_user_data(environ: Mapping[str, str], system: str, home: Path | None) -> Path:
    if system in {"win32", "darwin"}:
        from platformdirs import user_data_path

        return user_data_path("torchenv", appauthor=False)
    found = _find_base_directory("XDG_DATA_HOME", ".local/share", environ, home)
    if found is None:
        hint = "name a workspace with --root DIR or TORCHENV_HOME"
        raise InputError("this user has no home directory to keep a workspace in", hint=hint)
    return found


def _find_base_directory(
    variable: str, usual: str, environ: Mapping[str, str], home: Path | None
) -> Path | None:
    """Return the directory of the XDG base directory specification, by the variables of this run.

    platformdirs asks those of the process, and takes 4 ms to load.
    """
    named = environ.get(variable, "")
    # "All paths set in these environment variables must be absolute", else they are ignored.
    if Path(named).is_absolute():
        return Path(named) / "torchenv"
    return home / usual / "torchenv" if home else None


def find_project(cwd: Path, *, home: Path | None, exists: Callable[[Path], bool]) -> Path | None:
    """Return the nearest directory upwards that a project lives in; never the home directory or the root."""
    for directory in (cwd, *cwd.parents):
        if directory not in (home, directory.parent) and any(
            _is_there(directory / mark, exists) for mark in PROJECT_MARKS
        ):
            return directory
    return None


def _is_there(path: Path, look: Callable[[Path], bool]) -> bool:
    # What this user may not look at, such as another's home directory, is not this user's project.
    try:
        return look(path)
    except OSError:
        return False


def _find_profile(named: str | None, project: Path | None, cwd: Path) -> Path | None:
    if named is None:
        own = project / PROJECT_FILE if project else None
        return own if own is not None and _is_there(own, Path.is_file) else None
    is_file = named.endswith(".toml") or "/" in named or "\\" in named
    return cwd / named if is_file else None


def _read_installer(environ: Mapping[str, str]) -> str | None:
    named = environ.get("TORCHENV_INSTALLER") or None
    if named is None:
        return None
    from torchenv.profile.model import INSTALLERS

    if named not in INSTALLERS:
        hint = f"set TORCHENV_INSTALLER to {' or '.join(INSTALLERS)}"
        raise InputError(f"installer `{named}` not found", hint=hint)
    return named


def _expand_tilde(path: str, home: Path | None) -> Path:
    # A variable set in a file of a scheduler, or a quoted flag, comes with its tilde.
    if home is not None and (path == "~" or path.startswith(("~/", "~\\"))):
        return home / path[2:]
    return Path(path)
