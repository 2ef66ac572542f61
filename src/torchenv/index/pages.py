"""What a package index serves: project pages fetched and read into wheels."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from torchenv.errors import ToolFailed
from torchenv.host.model import architecture
from torchenv.index.http import Missing, Network, without_login

if TYPE_CHECKING:
    from packaging.tags import Tag

# A simple page in either form; the index takes the first that it knows.
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"

# Gives the text behind a URL; raises `ToolFailed` where nothing that counts as an answer came.
Fetch = Callable[[str], str | Missing]

# Writes the file behind a URL; raises `IndexFailed` where it cannot be had whole.
Download = Callable[[str, Path], None]


@dataclass(frozen=True, kw_only=True, slots=True)
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
        return frozenset(each for each in named if each is not None)

    def fits(self, python: str, platform: str) -> bool:
        """Return whether it installs for a Python such as `3.14t` on a platform such as `linux-x86_64`."""
        if self.requires_python and python.rstrip("t") not in self.requires_python:
            return False
        here = (tag for tag in self.tags if {platform, "any"} & _platforms(tag.platform))
        return any(_runs(tag, python) for tag in here)


@dataclass(frozen=True, slots=True)
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
        return frozenset(each.version for each in self.wheels)

    def of(self, version: Version) -> tuple[Wheel, ...]:
        """Return the wheels that `==version` matches: without a local label it takes any."""
        return tuple(each for each in self.wheels if version in {each.version, _public(each.version)})

    def has(self, version: Version, *, python: str, platform: str) -> bool:
        """Return whether a wheel that `==version` matches installs for this Python and platform."""
        return any(each.fits(python, platform) for each in self.of(version))

    @classmethod
    def parse(cls, text: str, url: str, name: str) -> ProjectPage:
        """Read a simple page, HTML (PEP 503) or JSON (PEP 691); raises `ToolFailed` for neither."""
        files = _json_files(text, url) if text.lstrip().startswith("{") else _html_files(text, url)
        wheels = (_wheel(each, name) for each in files)
        usable = tuple(each for each in wheels if each is not None and not each.yanked)
        return cls(url=url, wheels=usable, files=tuple(files))

    def file(self, name: str) -> ListedFile | None:
        """Find a file by its name, a yanked one too."""
        return next((each for each in self.files if each.filename == name), None)


def project(root: str, tag: str, name: str, fetch: Fetch) -> ProjectPage | None:
    """Read a project's page on the index `{root}/{tag}`; None where the index has none.

    An empty tag asks the root itself, where PyTorch lists the wheels of all backends together.
    Raises `ToolFailed` where the index cannot be reached.
    """
    index = f"{root.rstrip('/')}/{tag}".rstrip("/")
    url = f"{index}/{canonicalize_name(name)}/"
    text = fetch(url)
    return None if isinstance(text, Missing) else ProjectPage.parse(text, url, name)


_NETWORK = Network()


def fetcher(network: Network = _NETWORK, *, method: str = "GET") -> Fetch:
    """Make the `Fetch` of the real network; with `HEAD` it only looks whether something is there."""
    return lambda url: network.text(url, _ACCEPT, method)


def _json_files(text: str, url: str) -> list[ListedFile]:
    from urllib.parse import urljoin

    try:
        files: list[dict[str, Any]] = json.loads(text)["files"]
        return [
            ListedFile(
                filename=str(each["filename"]),
                url=urljoin(url, each["url"]),
                requires_python=each.get("requires-python"),
                yanked=each.get("yanked", False) is not False,
                sha256=each.get("hashes", {}).get("sha256"),
            )
            for each in files
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ToolFailed(f"the index page {without_login(url)} is not what PEP 691 describes") from None


def _html_files(text: str, url: str) -> list[ListedFile]:
    from html import unescape
    from urllib.parse import unquote, urljoin

    # <a href="/whl/cu132/torch-2.15.0%2Bcu132-cp312-cp312-win_amd64.whl#sha256=…"
    #    data-requires-python="&gt;=3.11">…</a>
    found = []
    for anchor in re.findall(r"<a\s([^>]*)>", text, re.IGNORECASE):
        given = {key.lower(): unescape(quoted[1:-1]) for key, quoted in _ATTRIBUTE.findall(anchor)}
        address, _, fragment = given.get("href", "").partition("#")
        filename = unquote(address.partition("?")[0].rstrip("/").rpartition("/")[2])
        found.append(
            ListedFile(
                filename=filename,
                url=urljoin(url, address),
                requires_python=given.get("data-requires-python"),
                yanked="data-yanked" in anchor.lower(),
                sha256=fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None,
            )
        )
    return found


_ATTRIBUTE = re.compile(r"""([\w-]+)\s*=\s*("[^"]*"|'[^']*')""")


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
        return {f"darwin-{each}" for each in machines}
    if system == "win":
        return {f"windows-{'arm64' if machine == 'arm64' else architecture(machine)}"}
    return {f"linux-{machine}"}


def _python(tag: Tag) -> str | None:
    # cp312-cp312, cp314-cp314t, cp312-none; py3 and abi3 stand for many
    match = re.fullmatch(r"cp3(\d+)", tag.interpreter)
    if match is None or tag.abi.startswith("abi3"):
        return None
    return f"3.{match[1]}{'t' if tag.abi.endswith('t') else ''}"


def _runs(tag: Tag, python: str) -> bool:
    named = _python(tag)
    if named is not None:
        return named == python
    if tag.interpreter == "py3":
        return tag.abi == "none"
    since = re.fullmatch(r"cp3(\d+)", tag.interpreter)
    wanted = "abi3t" if python.endswith("t") else "abi3"
    return since is not None and tag.abi == wanted and Version(python.rstrip("t")) >= Version(f"3.{since[1]}")


def _public(version: Version) -> Version:
    return Version(version.public)
