"""What a package index serves: project pages fetched and read into wheels."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from torchenv.errors import IndexFailed, InputError
from torchenv.host.model import architecture
from torchenv.index.http import Missing, Network
from torchenv.system.addresses import mask_logins
from torchenv.system.documents import Table
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from packaging.tags import Tag

# A simple page in either form; the index takes the first that it knows.
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"

# Gives the text behind a URL; raises `ToolFailed` where nothing that counts as an answer came.
Fetch = Callable[[str], str | Missing]

# Writes the file behind a URL, of a size if that is known; raises `IndexFailed` where it cannot be had whole.
Download = Callable[[str, Path, int | None], None]


class NotAnIndex(IndexFailed):
    """Something answers that is no package index, such as the page on which a network asks to log in."""


@frozen(kw_only=True)
class Wheel:
    """One wheel of a project, read from its file name and what the page says of it."""

    filename: str
    version: Version
    tags: frozenset[Tag]
    requires_python: SpecifierSet | None = None
    yanked: bool = False

    @property
    def platforms(self) -> frozenset[str]:
        """The platforms by the catalogue's names; `any` for a wheel without machine code."""
        return frozenset(name for tag in self.tags for name in _platforms(tag.platform))

    @property
    def pythons(self) -> frozenset[str]:
        """The Pythons that its tags name one by one, such as `3.12` or `3.14t`."""
        named = (_python(tag) for tag in self.tags)
        return frozenset(item for item in named if item is not None)

    def fits(self, python: str, platform: str) -> bool:
        """Return whether it installs for a Python such as `3.14t` on a platform such as `linux-x86_64`."""
        if self.requires_python and python.rstrip("t") not in self.requires_python:
            return False
        here = (tag for tag in self.tags if {platform, "any"} & _platforms(tag.platform))
        return any((tag.interpreter, tag.abi) in _runnable(python) for tag in here)


@frozen
class ListedFile:
    """One file of a project as the page lists it; not every page tells the hash."""

    filename: str
    url: str
    requires_python: str | None
    yanked: bool
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProjectPage:
    """The files of one project on one index, and its wheels, yanked ones left out."""

    url: str
    wheels: tuple[Wheel, ...]
    files: tuple[ListedFile, ...] = ()

    @cached_property
    def versions(self) -> frozenset[Version]:
        """All versions that there are wheels of, each with its local label."""
        return frozenset(wheel.version for wheel in self.wheels)

    def of(self, version: Version) -> tuple[Wheel, ...]:
        """Return the wheels that `==version` matches: without a local label it takes any."""
        return tuple(wheel for wheel in self.wheels if version in {wheel.version, _public(wheel.version)})

    def has(self, version: Version, *, python: str, platform: str) -> bool:
        """Return whether a wheel that `==version` matches installs for this Python and platform."""
        return any(item.fits(python, platform) for item in self.of(version))

    @classmethod
    def parse(cls, text: str, url: str, name: str) -> ProjectPage:
        """Read a simple page, HTML (PEP 503) or JSON (PEP 691); raises `ToolFailed` for neither."""
        files = _json_files(text, url) if text.lstrip().startswith("{") else _html_files(text, url)
        wheels = (_wheel(item, name) for item in files)
        usable = tuple(wheel for wheel in wheels if wheel is not None and not wheel.yanked)
        return cls(url=url, wheels=usable, files=tuple(files))

    def file(self, name: str) -> ListedFile | None:
        """Find a file by its name, a yanked one too."""
        return next((item for item in self.files if item.filename == name), None)


def project(index: str, name: str, fetch: Fetch) -> ProjectPage | None:
    """Read a project's page on an index; None where the index has none.

    Raises `ToolFailed` where the index cannot be reached, or something else answers.
    """
    url = f"{index.rstrip('/')}/{canonicalize_name(name)}/"
    text = fetch(url)
    return None if isinstance(text, Missing) else ProjectPage.parse(text, url, name)


def fetcher(network: Network, *, method: str = "GET") -> Fetch:
    """Make the `Fetch` of the real network; with `HEAD` it only looks whether something is there."""
    return lambda url: network.text(url, _ACCEPT, method)


def _json_files(text: str, url: str) -> list[ListedFile]:
    try:
        document = Table.from_json(text, url)
        document.get("files", list)
        return [
            ListedFile(
                filename=file.get("filename", str),
                url=urljoin(url, file.get("url", str)),
                requires_python=file.raw().get("requires-python") and file.get("requires-python", str),
                yanked=file.raw().get("yanked", False) is not False,
                sha256=file.table("hashes").maybe("sha256", str),
            )
            for file in document.tables("files")
        ]
    except (InputError, ValueError, TypeError, AttributeError, RecursionError):
        raise IndexFailed(f"the index page {mask_logins(url)} is not what PEP 691 describes") from None


def _html_files(text: str, url: str) -> list[ListedFile]:
    # <a href="/whl/cu132/torch-2.15.0%2Bcu132-cp312-cp312-win_amd64.whl#sha256=…"
    #    data-requires-python="&gt;=3.11">…</a>
    from torchenv.index.anchors import read_anchors

    page = read_anchors(text)
    found = []
    for given in page.anchors:
        address, _, fragment = given.get("href", "").partition("#")
        if not address:
            continue
        try:
            joined = urljoin(urljoin(url, page.base or ""), address)
            filename = unquote(urlsplit(joined).path.rstrip("/").rpartition("/")[2])
        except ValueError:
            # http://[broken
            continue
        found.append(
            ListedFile(
                filename=filename,
                url=joined,
                requires_python=given.get("data-requires-python") or None,
                yanked="data-yanked" in given,
                sha256=fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None,
            )
        )
    if text.strip() and not page.is_index and not any(_is_file_of_package(file.filename) for file in found):
        raise NotAnIndex(
            f"{mask_logins(url)} answers with a web page that lists no files: it is no package index",
            hint="check the address, and whether this network asks to log in first",
        )
    return found


def _is_file_of_package(filename: str) -> bool:
    return filename.endswith((".whl", ".tar.gz", ".zip", ".tar.bz2", ".egg", ".metadata"))


def _wheel(file: ListedFile, name: str) -> Wheel | None:
    if not file.filename.endswith(".whl"):
        return None
    try:
        project_name, version, _build, tags = parse_wheel_filename(file.filename)
        requires = SpecifierSet(file.requires_python) if file.requires_python else None
    except (InvalidWheelFilename, InvalidSpecifier):
        return None
    if project_name != canonicalize_name(name):
        return None
    return Wheel(
        filename=file.filename, version=version, tags=tags, requires_python=requires, yanked=file.yanked
    )


def _platforms(tag: str) -> set[str]:
    # manylinux_2_28_x86_64, manylinux2014_aarch64, linux_x86_64, win_amd64, macosx_14_0_arm64, any
    if tag == "any":
        return {"any"}
    match = re.fullmatch(r"(manylinux|linux|win|macosx)[\d_]*?_?(x86_64|aarch64|amd64|arm64|universal2)", tag)
    if match is None:
        return set()
    system, machine = match.groups()
    if system == "macosx":
        machines = ["arm64", "x86_64"] if machine == "universal2" else [machine]
        return {f"darwin-{machine}" for machine in machines}
    if system == "win":
        return {f"windows-{'arm64' if machine == 'arm64' else architecture(machine)}"}
    return {f"linux-{machine}"}


def _python(tag: Tag) -> str | None:
    # cp312-cp312, cp314-cp314t, cp312-none; py3 and abi3 stand for many
    match = re.fullmatch(r"cp3(\d+)", tag.interpreter)
    if match is None or tag.abi.startswith("abi3"):
        return None
    return f"3.{match[1]}{'t' if tag.abi.endswith('t') else ''}"


@cache
def _runnable(python: str) -> frozenset[tuple[str, str]]:
    """Return the pairs of interpreter and ABI that a Python such as `3.14t` installs."""
    from packaging.tags import compatible_tags, cpython_tags

    major, minor = map(int, python.rstrip("t").split("."))
    interpreter = f"cp{major}{minor}"
    abi = f"{interpreter}t" if python.endswith("t") else interpreter
    # Which platform it is, is looked at apart: of a machine that is planned for, no libc may be known.
    native = cpython_tags((major, minor), abis=[abi], platforms=["any"])
    pure = compatible_tags((major, minor), interpreter=interpreter, platforms=["any"])
    return frozenset((tag.interpreter, tag.abi) for tag in (*native, *pure))


def _public(version: Version) -> Version:
    return Version(version.public)
