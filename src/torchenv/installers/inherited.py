"""What pip's and uv's own settings say: ignored where it steers, kept where it opens the network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from configparser import ConfigParser, Error
from pathlib import Path
from typing import Any

from torchenv.system.process import list_ignored
from torchenv.system.values import frozen

ReadText = Callable[[Path], str]


@frozen
class Constraint:
    """One line of a constraint that the machine or the user set for other tools."""

    source: str
    requirement: str

    def __str__(self) -> str:
        return f"{self.requirement} ({self.source})"


@frozen
class Inherited:
    """What was found: `ignored` as people would look for it, `network` as variables to add.

    `network` holds what pip's files say of certificates and proxies, in pip's own variables, and
    is to be laid under the process environment.
    """

    ignored: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    network: Mapping[str, str]

    @property
    def indexes(self) -> tuple[str, ...]:
        """Those of the ignored that would have led to another index."""
        # PIP_EXTRA_INDEX_URL; `extra-index-url in /etc/pip.conf`
        return self._find_ignored(r"index(?!.strategy)")

    @property
    def links(self) -> tuple[str, ...]:
        """Those of the ignored that would have led to files beside any index."""
        # UV_FIND_LINKS; `find-links in /etc/pip.conf`
        return self._find_ignored(r"find.links")

    def _find_ignored(self, pattern: str) -> tuple[str, ...]:
        # PIP_NO_INDEX leads to none, and UV_INDEX_STRATEGY chooses among those there are.
        named = re.compile(rf"(?<!no.){pattern}", re.IGNORECASE)
        return tuple(item for item in self.ignored if named.search(item.partition(" in ")[0]))

    def forbidding(self, requirements: Sequence[str]) -> tuple[Constraint, ...]:
        """Return the constraints that no planned requirement (name==version) could be installed under.

        torchenv does not obey them, but whoever set them meant something by it.
        """
        return tuple(
            constraint
            for constraint in self.constraints
            if any(_forbids(constraint.requirement, wanted) for wanted in requirements)
        )


def read_inherited(environ: Mapping[str, str], read: ReadText, *, system: str, home: Path) -> Inherited:
    """Read the variables and the files that pip and uv would obey on this `system` (sys.platform).

    A file that is not there or cannot be read is one that they would not obey either.
    """
    said = list(list_ignored(environ))
    constraints = [
        constraint
        for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT")
        for path in environ.get(name, "").split()
        for constraint in _lines(Path(path), read)
    ]
    network: dict[str, str] = {}
    for path in pip_files(environ, system=system, home=home):
        for key, value in _pip_settings(path, read).items():
            if key in _NETWORK:
                network[f"PIP_{key.upper().replace('-', '_')}"] = value
            elif key not in _MANNERS:
                said.append(f"{key} in {path}")
            if key == "constraint":
                constraints += (line for name in value.split() for line in _lines(Path(name), read))
    for path in uv_files(environ, system=system, home=home):
        for key, value in _uv_settings(path, read).items():
            said.append(f"{key} in {path}")
            if key == "constraint-dependencies" and isinstance(value, list):
                constraints += (Constraint(str(path), str(item)) for item in value)
    return Inherited(tuple(said), tuple(constraints), network)


# pip's settings that open the network, and those that only say how it behaves.
_NETWORK = frozenset({"cert", "client-cert", "proxy", "trusted-host"})
_MANNERS = frozenset(
    {
        "cache-dir",
        "disable-pip-version-check",
        "keyring-provider",
        "no-input",
        "progress-bar",
        "retries",
        "root-user-action",
        "timeout",
    }
)


def pip_files(environ: Mapping[str, str], *, system: str, home: Path) -> tuple[Path, ...]:
    """Return the files that pip would read, the weaker before the stronger."""
    if system == "win32":
        machine = [Path(environ.get("PROGRAMDATA", "C:/ProgramData")) / "pip" / "pip.ini"]
        roaming = Path(environ.get("APPDATA", home / "AppData" / "Roaming"))
        user = [home / "pip" / "pip.ini", roaming / "pip" / "pip.ini"]
    else:
        user = [home / ".pip" / "pip.conf", _config_home(environ, home) / "pip" / "pip.conf"]
        if system == "darwin":
            machine = [Path("/Library/Application Support/pip/pip.conf")]
            user.append(home / "Library" / "Application Support" / "pip" / "pip.conf")
        else:
            machine = [item / "pip" / "pip.conf" for item in _config_dirs(environ)]
            machine.append(Path("/etc/pip.conf"))
    named = environ.get("PIP_CONFIG_FILE")
    return (*machine, *user, *((Path(named),) if named else ()))


def uv_files(environ: Mapping[str, str], *, system: str, home: Path) -> tuple[Path, ...]:
    """Return the files that uv would read outside any project."""
    if system == "win32":
        machine = [Path(environ.get("PROGRAMDATA", "C:/ProgramData")) / "uv" / "uv.toml"]
        user = Path(environ.get("APPDATA", home / "AppData" / "Roaming")) / "uv" / "uv.toml"
    else:
        machine = [item / "uv" / "uv.toml" for item in (*_config_dirs(environ), Path("/etc"))]
        user = _config_home(environ, home) / "uv" / "uv.toml"
    named = environ.get("UV_CONFIG_FILE")
    return (*machine, user, *((Path(named),) if named else ()))


def _config_home(environ: Mapping[str, str], home: Path) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config")


def _config_dirs(environ: Mapping[str, str]) -> tuple[Path, ...]:
    return tuple(Path(part) for part in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":") if part)


def _pip_settings(path: Path, read: ReadText) -> dict[str, str]:
    # [global]
    # constraint = /etc/xdg/pip/constraints.txt
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(read(path))
    except (OSError, UnicodeDecodeError, Error):
        return {}
    sections = [name for name in ("global", "install") if parser.has_section(name)]
    return {key.replace("_", "-"): value for name in sections for key, value in parser.items(name)}


def _uv_settings(path: Path, read: ReadText) -> dict[str, Any]:
    import tomllib

    try:
        settings = tomllib.loads(read(path))
    except (OSError, ValueError, RecursionError):
        return {}
    below = settings.pop("pip", {})
    if not isinstance(below, dict):
        return settings
    return {**settings, **{f"pip.{key}": value for key, value in below.items()}}


def _lines(path: Path, read: ReadText) -> list[Constraint]:
    try:
        text = read(path)
    except (OSError, UnicodeDecodeError):
        return []
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [Constraint(str(path), line) for line in lines if line]


def _forbids(constraint: str, wanted: str) -> bool:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        limit, planned = Requirement(constraint), Requirement(wanted)
    except InvalidRequirement:
        # -r other.txt, a bare address: nothing that names a version.
        return False
    if canonicalize_name(limit.name) != canonicalize_name(planned.name):
        return False
    pins = [item.version for item in planned.specifier if item.operator == "=="]
    return any(not limit.specifier.contains(version, prereleases=True) for version in pins)
