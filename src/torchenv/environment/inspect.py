"""What an environment on disk is and holds, read from its files; nothing in it is ever run or imported."""

from __future__ import annotations

import csv
import os
import re
from binascii import a2b_base64
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from torchenv.errors import InputError
from torchenv.system.looking import find_paths
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from importlib.metadata import Distribution as Metadata

_METADATA = frozenset({"dist-info", "egg-info"})


class Layout(Enum):
    """How an environment is laid out, which says who manages it."""

    VENV = "venv"
    CONDA = "conda"
    SYSTEM = "system"
    USER = "user"


@frozen(kw_only=True)
class Installation:
    """One environment as its files tell it.

    `python` is as exact as the files say (3.12.4, or only 3.12); `interpreter` is how the environment is
    started and `base` what it stands on; `torch` has its local label, such as 2.14.1+cu126.
    `made_at` is where its maker says that it was made, where it says so.
    """

    path: Path
    layout: Layout
    python: str | None = None
    interpreter: Path | None = None
    base: Path | None = None
    site_packages: tuple[Path, ...] = ()
    torch: str | None = None
    made_at: Path | None = None

    @property
    def backend(self) -> str | None:
        """The label of its torch, such as `cu126` or `cpu`; None for a build without one."""
        return self.torch.partition("+")[2] or None if self.torch else None

    @property
    def has_moved(self) -> bool:
        """Whether it was made at another place: its scripts name interpreters that are no longer there."""
        return self.made_at is not None and self.made_at != self.path


@frozen
class RecordLine:
    """One file of a distribution, by its path; the digest is hexadecimal SHA-256, where RECORD has one."""

    # A string: an environment has 20,000 of them.
    path: str
    digest: str | None
    size: int | None


@frozen(kw_only=True)
class Distribution:
    """An installed package, by its `*.dist-info` directory or its `*.egg-info`, which may be a file.

    `requested` means that someone asked for it by name; `direct_url` is the text of the file that says
    it came from a path, an archive or a repository rather than from an index; `installer` names who put
    it there, such as pip, uv or conda.
    """

    name: str
    version: str
    info: Path
    requested: bool = False
    requires: tuple[str, ...] = ()
    direct_url: str | None = None
    installer: str | None = None

    def record(self) -> Iterator[RecordLine]:
        """Yield the files that its installer says it wrote; none where the installer keeps no list."""
        text = _read(self.info / "RECORD")
        if text is None:
            # An .egg-info lists its files relative to itself, and without digests: ../torchao/__init__.py
            for line in (_read(self.info / "installed-files.txt") or "").splitlines():
                yield RecordLine(os.path.normpath(self.info / line), None, None)
            return
        site = str(self.info.parent)
        for row in csv.reader(text.splitlines()):
            # torch/version.py,sha256=3iQ2fJ…,1024
            if len(row) == 3:
                path, digest, size = row
                # Scripts are written as ../../../bin/torchrun.
                path = os.path.normpath(f"{site}/{path}") if _IS_CROOKED.search(path) else f"{site}/{path}"
                yield RecordLine(path, _hexadecimal(digest), int(size) if size.isdecimal() else None)


def describe(path: Path) -> Installation:
    """Read what is at `path`: a venv, a conda environment, a system Python, or a `--user` directory.

    An interpreter stands for the environment it is in. Raises `InputError` where there is none.
    """
    path = Path(os.path.normpath(path.absolute()))
    if os.path.isfile(path) and path.parent.name in {"bin", "Scripts"}:
        path = path.parent.parent
    elif os.path.isfile(path):
        path = path.parent
    if os.path.isfile(path / "pyvenv.cfg"):
        return _describe_venv(path)
    if os.path.isdir(path / "conda-meta"):
        return _describe_conda(path)
    if _interpreter(path):
        return _describe_system(path)
    sites = _site_packages(path)
    if sites:
        minor = _minor_of(sites[-1])
        return Installation(
            path=path, layout=Layout.USER, python=minor, site_packages=sites, torch=torch_version(sites)
        )
    hint = "name the directory of a venv or of a conda environment, or the path of an interpreter"
    raise InputError(f"`{path}` is not a Python environment", hint=hint)


def distributions(installation: Installation) -> tuple[Distribution, ...]:
    """Return the installed packages by name; what stands first on the path hides what comes later."""
    found: dict[str, Distribution] = {}
    for site in installation.site_packages:
        for metadata in _find_metadata(site):
            distribution = _distribution(*metadata)
            if distribution:
                found.setdefault(canonical(distribution.name), distribution)
    return tuple(found[name] for name in sorted(found))


def list_metadata(installation: Installation) -> dict[str, tuple[Path, ...]]:
    """Return where the metadata of each package in an environment of its own lie, by canonical name.

    More than one place means that an install or an uninstall was stopped half-way. What pip set aside while
    it uninstalled, whose name begins with `~`, stands under the name `~`.
    """
    found: dict[str, list[Path]] = {}
    for site in installation.site_packages:
        if not site.is_relative_to(installation.path):
            continue
        for name in sorted(_list_directory(site)):
            stem, _, suffix = name.rpartition(".")
            if name.startswith("~"):
                found.setdefault("~", []).append(site / name)
            elif suffix in _METADATA:
                # foo-1.0-py3.12.egg-info
                found.setdefault(canonical(stem.partition("-")[0]), []).append(site / name)
    return {name: tuple(paths) for name, paths in found.items()}


def read_recorded_digests(installation: Installation) -> dict[str, str]:
    """Return the files that pip's RECORD or conda vouches for, by path, each with its hexadecimal SHA-256."""
    digests = dict(_conda_digests(installation.path)) if installation.layout is Layout.CONDA else {}
    for distribution in distributions(installation):
        digests |= {line.path: line.digest for line in distribution.record() if line.digest}
    return digests


def find_stray_scripts(installation: Installation) -> tuple[tuple[Path, str], ...]:
    """Return the scripts that would start an interpreter from outside, each with that interpreter."""
    directory = installation.path / ("Scripts" if os.path.isdir(installation.path / "Scripts") else "bin")
    scripts = [
        script for script in find_paths(directory, "*") if os.path.isfile(script) and not script.is_symlink()
    ]
    starts = ((script, _find_interpreter(script)) for script in scripts)
    own = f"{installation.path}{os.sep}"
    return tuple((script, python) for script, python in starts if python and not python.startswith(own))


def torch_version(site_packages: tuple[Path, ...]) -> str | None:
    """Read torch's version with its local label, which its metadata leave out, without importing it.

    What is no version by PEP 440 is passed over, as if there were none.
    """
    for site in site_packages:
        text = _read(site / "torch" / "version.py")
        # __version__ = '2.14.1+cu130'
        match = re.search(r"""^__version__(?::\s*\w+)?\s*=\s*['"]([^'"]+)['"]""", text or "", re.MULTILINE)
        if match and _is_version(match[1]):
            return match[1]
        # torch-2.14.1.dist-info    torch-2.14.1-py3.12.egg-info
        infos = (name.rpartition(".") for name in sorted(_list_directory(site)) if name.startswith("torch-"))
        stem = next((stem for stem, _, suffix in infos if suffix in _METADATA), None)
        if stem is not None and _is_version(stem.split("-")[1]):
            return stem.split("-")[1]
    return None


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def read_venv_version(text: str) -> str | None:
    """Return the version of Python that the text of a pyvenv.cfg names."""
    return _find_version(_settings(text))


def canonical(name: str) -> str:
    """Return the one spelling of a package's name: Foo_Bar is foo-bar."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _describe_venv(path: Path) -> Installation:
    settings = _settings(_read(path / "pyvenv.cfg") or "")
    version = _find_version(settings)
    sites = _site_packages(path)
    base = _base(path, settings)
    if settings.get("include-system-site-packages") == "true" and settings.get("home"):
        sites += _find_system_sites(Path(settings["home"]), version)
    return Installation(
        path=path,
        layout=Layout.VENV,
        python=version,
        interpreter=_interpreter(path),
        base=base,
        site_packages=sites,
        torch=torch_version(sites),
        made_at=_find_origin(path, settings),
    )


def _find_system_sites(home: Path, version: str | None) -> tuple[Path, ...]:
    # A prefix such as /usr holds the packages of several Pythons.
    minor = ".".join((version or "").split(".")[:2])
    sites = _site_packages(home.parent if home.name == "bin" else home)
    return tuple(site for site in sites if _minor_of(site) in {minor, "3", None})


def _find_version(settings: Mapping[str, str]) -> str | None:
    # venv writes `version = 3.12.1`, uv `version_info = 3.12.1`, virtualenv `version_info = 3.12.1.final.0`.
    version = re.match(r"\d+\.\d+(\.\d+)?", settings.get("version") or settings.get("version_info", ""))
    return version[0] if version else None


def _settings(text: str) -> dict[str, str]:
    # home = /usr/bin
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _base(path: Path, settings: dict[str, str]) -> Path | None:
    # virtualenv writes base-executable, venv executable; uv only the directory, and links to the rest.
    for key in ("base-executable", "executable"):
        if settings.get(key):
            return Path(settings[key])
    inside = _interpreter(path)
    if inside is not None and inside.is_symlink():
        return Path(os.path.realpath(inside))
    home = settings.get("home")
    return next(_interpreters(Path(home)), None) if home else None


def _find_origin(path: Path, settings: dict[str, str]) -> Path | None:
    # command = /usr/bin/python3.12 -m venv --without-pip /home/u/project/.venv
    stated = re.search(r"-m venv\s(?:.*\s)?(/.*|[A-Za-z]:\\.*)$", settings.get("command", ""))
    if stated is None:
        # uv and virtualenv say it in the scripts that a shell reads: VIRTUAL_ENV='/home/u/project/.venv'
        activate = _read(path / "bin" / "activate") or _read(path / "Scripts" / "activate") or ""
        pattern = r"""^\s*(?:export )?VIRTUAL_ENV=['"]?([^'"$\n]+)['"]?\s*$"""
        stated = re.search(pattern, activate, re.MULTILINE)
    if stated is None:
        return None
    made_at = Path(stated[1])
    # A project may be reached by more names than one.
    return path if os.path.exists(made_at) and made_at.samefile(path) else made_at


def _describe_conda(path: Path) -> Installation:
    # conda-meta/python-3.12.4-h194c7f8_0_cpython.json
    meta = next(iter(find_paths(path / "conda-meta", "python-[0-9]*.json")), None)
    sites = _site_packages(path)
    interpreter = _interpreter(path)
    return Installation(
        path=path,
        layout=Layout.CONDA,
        python=meta.name.split("-")[1] if meta else None,
        interpreter=interpreter,
        base=interpreter,
        site_packages=sites,
        torch=torch_version(sites),
    )


def _describe_system(path: Path) -> Installation:
    interpreter = _interpreter(path)
    assert interpreter is not None
    real = Path(os.path.realpath(interpreter))
    sites = _site_packages(path)
    named = re.fullmatch(r"python(\d\.\d+t?)", real.name)
    if named:
        # A prefix such as /usr holds several; only the one that `python3` means is looked at.
        sites = tuple(site for site in sites if _minor_of(site) in {named[1], "3"})
    version = named[1] if named else (_minor_of(sites[-1]) if sites else None)
    patch = _read(path / "include" / f"python{version}" / "patchlevel.h")
    # #define PY_VERSION              "3.12.4"
    exact = re.search(r'^#define\s+PY_VERSION\s+"([^"]+)"', patch or "", re.MULTILINE)
    return Installation(
        path=path,
        layout=Layout.SYSTEM,
        python=exact[1] if exact else version,
        interpreter=interpreter,
        base=real,
        site_packages=sites,
        torch=torch_version(sites),
    )


def _interpreter(path: Path) -> Path | None:
    places = (path / "bin", path / "Scripts", path)
    return next((found for place in places for found in _interpreters(place)), None)


def _interpreters(directory: Path) -> Iterator[Path]:
    for name in ("python", "python3", "python.exe"):
        # A link is one even where the interpreter it leads to is gone.
        if (directory / name).is_symlink() or os.path.isfile(directory / name):
            yield directory / name


def _site_packages(path: Path) -> tuple[Path, ...]:
    patterns = (
        "lib/python3*/site-packages",
        "lib64/python3*/site-packages",
        # Debian keeps what is managed by apt apart, without the minor version.
        "local/lib/python3*/dist-packages",
        "lib/python3*/dist-packages",
        "Lib/site-packages",
        # %APPDATA%\\Python\\Python312\\site-packages, for --user on Windows
        "Python3*/site-packages",
    )
    found: dict[tuple[int, int], Path] = {}
    for pattern in patterns:
        for site in find_paths(path, pattern):
            # lib64 is often a link to lib, and some systems do not tell Lib from lib.
            with suppress(OSError):
                status = site.stat()
                found.setdefault((status.st_dev, status.st_ino), site)
    return tuple(found.values())


def _minor_of(site: Path) -> str | None:
    match = re.fullmatch(r"python(3(?:\.\d+t?)?)|Python3(\d+)", site.parent.name)
    if match is None:
        return None
    return match[1] or f"3.{match[2]}"


def _find_metadata(site: Path) -> Iterator[tuple[Metadata, Path]]:
    """Yield the metadata of the packages in a directory, each with its place, but for what is half gone."""
    from importlib.metadata import Distribution as Metadata

    for name in sorted(_list_directory(site)):
        if name.rpartition(".")[2] in _METADATA and not name.startswith("~"):
            yield Metadata.at(site / name), site / name


def _distribution(metadata: Metadata, info: Path) -> Distribution | None:
    try:
        headers = metadata.metadata
        requires = headers.get_all("Requires-Dist") or ()
        if info.suffix == ".egg-info":
            requires = metadata.requires or ()
        name, version = headers["Name"], headers["Version"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        # Metadata that cannot be read, or that are not there at all, are those of no package.
        return None
    if not name or not version:
        return None
    return Distribution(
        name=name.strip(),
        version=version.strip(),
        info=info,
        requested=os.path.isfile(info / "REQUESTED"),
        requires=tuple(value.strip() for value in requires),
        direct_url=_read(info / "direct_url.json"),
        installer=(_read(info / "INSTALLER") or "").strip() or None,
    )


def _list_directory(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are enough, and there are hundreds
    except OSError:
        return []


def _find_interpreter(script: Path) -> str | None:
    with script.open("rb") as file:
        head = file.read(4096)
    # #!/home/u/project/.venv/bin/python
    # Where that is long or has spaces, #!/bin/sh and then
    # '''exec' "/home/u/my project/.venv/bin/python" "$0" "$@"
    match = re.match(rb"""#!\s*(?:/bin/sh\s+'''exec'\s+"?)?([^"\n]*python[^"\n/\\]*?)(?:"|\s|$)""", head)
    return os.fsdecode(match[1]) if match else None


def _conda_digests(path: Path) -> Iterator[tuple[str, str]]:
    import json

    for meta in find_paths(path / "conda-meta", "*.json"):
        # Where conda wrote the prefix into a file, that file has a digest of its own:
        # {"_path": "bin/pip", "path_type": "hardlink", "sha256": "…", "sha256_in_prefix": "…"}
        # One that conda was stopped in writing leaves its files to be compared by what they hold.
        with suppress(ValueError, RecursionError, LookupError, TypeError, AttributeError):
            for file in json.loads(_read(meta) or "{}")["paths_data"]["paths"]:
                digest = file.get("sha256_in_prefix") or file.get("sha256")
                if digest and file.get("path_type") == "hardlink":
                    yield os.path.normpath(f"{path}/{file['_path']}"), digest


def _hexadecimal(digest: str) -> str | None:
    # sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU, Base64 for addresses, without padding
    kind, _, encoded = digest.partition("=")
    try:
        # What `urlsafe_b64decode` does, in a third of its time: there are 20,000 of them.
        return a2b_base64(encoded.translate(_FOR_ADDRESSES) + "==").hex() if kind == "sha256" else None
    except ValueError:
        return None


_FOR_ADDRESSES = str.maketrans("-_", "+/")

# What a path that is joined as it stands may not hold: /bin/a, a//b, ./a, a/../b, and a backslash on Windows.
_IS_CROOKED = re.compile(r"^/|//|(?:^|/)\.{1,2}(?:/|$)|/$" + (r"|[/\\:]" if os.sep != "/" else ""))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
