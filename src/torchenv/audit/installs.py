"""What a file or a command asks an installer for: requirements and the indexes they come from."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from torchenv.audit.commands import Command, Word
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.findings import TextPlace

# https://download.pytorch.org/whl/cu126, https://mirror.example/pytorch-wheels/rocm7.2/
_INDEX = re.compile(
    r"(?:pytorch\.org/whl|/pytorch-wheels|/pytorch/whl)/(cu\d+|rocm\d+(?:\.\d+)+|cpu|xpu)(?![\w.])"
)
# What a file must say, one of them, to name an index in any of the ways read here.
INDEX_NEEDLES = (
    (b"pytorch.org/whl/",),
    (b"/pytorch-wheels/",),
    (b"/pytorch/whl/",),
    (b"torch-backend",),
    (b"UV_TORCH_BACKEND",),
)
# Options of pip, uv, poetry and conda that take the next word with them.
_WITH_VALUE = frozenset(
    (
        "-r", "--requirement", "-c", "--constraint", "-t", "--target", "-e", "--editable", "-p",
        "--python", "--prefix", "--root", "--proxy", "--platform", "--python-version", "--abi",
        "--implementation", "--cache-dir", "--log", "--timeout", "--retries", "--no-binary",
        "--only-binary", "--group", "--extra", "--name", "-n", "--channel", "--index-strategy",
        "--prerelease", "--trusted-host", "--progress-bar", "--src", "--upgrade-strategy",
        "--config-settings", "-d", "--dest",
    )
)  # fmt: skip
_INDEX_OPTIONS = {
    "-i": False,
    "--index-url": False,
    "--index": True,
    "--default-index": False,
    "--extra-index-url": True,
    "-f": True,
    "--find-links": True,
    "--torch-backend": False,
}
_INSTALLS = frozenset({"install", "add", "download", "wheel", "sync", "compile", "create"})
_CONDA_NAMES = {"pytorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch"}


@frozen
class NamedRequirement:
    """One requirement, by its normalised name; `label` is the local part of an exact pin."""

    name: str
    specifier: SpecifierSet
    label: str | None
    place: TextPlace
    marker: str = ""

    def __str__(self) -> str:
        return f"{self.name}{self.specifier}"

    def applies_to(self, python: str) -> bool:
        """Return whether its marker lets it in on some system with this Python, such as `3.10`."""
        return any(python == minor for minor, *_ in _where(self.marker))

    def meets(self, other: NamedRequirement) -> bool:
        """Return whether some environment has both: their markers do not exclude each other."""
        return not _where(self.marker).isdisjoint(_where(other.marker))


@frozen
class IndexReference:
    """An index of one PyTorch backend; `extra` when the default index is asked beside it."""

    backend: str
    extra: bool
    place: TextPlace


@frozen
class InstallCommand:
    """What is installed together: one command, or all that one file lists."""

    asked: tuple[NamedRequirement, ...] = ()
    indexes: tuple[IndexReference, ...] = ()

    def family(self, names: frozenset[str]) -> tuple[NamedRequirement, ...]:
        """Return what is asked for of torch's family, which has these names."""
        return tuple(requirement for requirement in self.asked if requirement.name in names)


def parse_requirement(text: str, place: TextPlace) -> NamedRequirement | None:
    """Read a requirement as pip writes it; None for paths, URLs and whatever else is not one."""
    if text.startswith(("http:", "https:")):
        return parse_wheel_address(text, place)
    try:
        requirement = Requirement(text.split(" #", maxsplit=1)[0].strip().rstrip("\\").strip())
    except InvalidRequirement:
        return None
    marker = str(requirement.marker or "")
    if requirement.url:
        return parse_wheel_address(requirement.url, place)
    return _make_requirement(requirement.name, requirement.specifier, place, marker)


def parse_wheel_address(text: str, place: TextPlace) -> NamedRequirement | None:
    """Read the address of one wheel, `https://…/torch-2.15.0%2Bcu126-cp312-….whl`; None for any other."""
    name = unquote(urlsplit(text).path.rpartition("/")[2])
    try:
        project, version, _, _ = parse_wheel_filename(name)
        return _make_requirement(project, SpecifierSet(f"=={version}"), place)
    except (InvalidWheelFilename, ValueError):
        return None


def parse_match_spec(text: str, place: TextPlace) -> NamedRequirement | None:
    """Read a match spec of conda: `pytorch=2.14`, `pytorch>=2.1`, `conda-forge::pytorch ==2.1`."""
    match = re.match(r"(?:[\w\-./]+::)?([\w\-.]+)\s*(?:([=<>!~][^\s]*))?", text.strip())
    if not match:
        return None
    name, version = match[1], match[2] or ""
    if single := re.fullmatch(r"=([\d.]+?)(?:\.?\*)?(?:=.*)?", version):
        version = f"=={single[1]}.*"
    try:
        return _make_requirement(_CONDA_NAMES.get(name, name), SpecifierSet(version), place)
    except ValueError:
        return None


def index_in(text: str, place: TextPlace, *, extra: bool) -> IndexReference | None:
    """Read the backend out of the address of a PyTorch index."""
    match = _INDEX.search(text)
    return IndexReference(match[1], extra, place) if match else None


def install_of(command: Command) -> InstallCommand | None:
    """Read an install command of pip, uv, poetry, pdm, conda or mamba."""
    start = _arguments_start(command)
    if start is None:
        return None
    conda = any(_program(word) in {"conda", "mamba", "micromamba"} for word in command[:start])
    found: list[NamedRequirement] = []
    indexes: list[IndexReference] = []
    words = iter(command[start:])
    for word in words:
        option, equals, value = word.text.partition("=")
        if word.text.startswith("-"):
            if option in _INDEX_OPTIONS:
                given = Word(value, word.place) if equals else next(words, word)
                indexes += _indexes(option, given)
            elif not equals and option in _WITH_VALUE:
                next(words, None)
        elif parsed := (parse_match_spec if conda else parse_requirement)(word.text, word.place):
            found.append(parsed)
    return InstallCommand(tuple(found), tuple(indexes))


def find_index_settings(command: Command) -> Iterator[IndexReference]:
    """Read indexes given by assignment: `ENV PIP_INDEX_URL=…`, `export UV_TORCH_BACKEND=…`."""
    for word in command:
        name, equals, value = word.text.partition("=")
        if not equals or not re.fullmatch(r"\w+", name):
            continue
        if name == "UV_TORCH_BACKEND":
            yield from _indexes("--torch-backend", Word(value, word.place))
        elif index := index_in(value, word.place, extra="EXTRA" in name.upper()):
            yield index


def _make_requirement(
    name: str, specifier: SpecifierSet, place: TextPlace, marker: str = ""
) -> NamedRequirement:
    label = next((v.version.partition("+")[2] for v in specifier if "+" in v.version), None)
    return NamedRequirement(canonicalize_name(name), specifier, label, place, marker)


@cache
def _where(marker: str) -> frozenset[tuple[str, str, str]]:
    """Return the environments that a marker lets in, as (Python, sys_platform, machine)."""
    everywhere = product(
        [f"3.{minor}" for minor in range(6, 19)], ["linux", "win32", "darwin"], ["x86_64", "aarch64", "arm64"]
    )
    if not marker:
        return frozenset(everywhere)
    parsed = Marker(marker)
    return frozenset(
        (python, system, machine)
        for python, system, machine in everywhere
        if parsed.evaluate(
            {
                "python_version": python,
                "python_full_version": f"{python}.9",
                "sys_platform": system,
                "platform_system": {"linux": "Linux", "win32": "Windows", "darwin": "Darwin"}[system],
                "platform_machine": machine,
                "os_name": "nt" if system == "win32" else "posix",
                "extra": "",
            }
        )
    )


def _arguments_start(command: Command) -> int | None:
    for n, word in enumerate(command):
        if re.fullmatch(r"(?:.*/)?(?:pip[\d.]*|uv|poetry|pdm|pixi|conda|mamba|micromamba)", word.text):
            for m, following in enumerate(command[n + 1 : n + 5], n + 1):
                if following.text in _INSTALLS:
                    return m + 1
    return None


def _program(word: Word) -> str:
    return word.text.rpartition("/")[2]


def _indexes(option: str, given: Word) -> Iterator[IndexReference]:
    if option == "--torch-backend":
        if re.fullmatch(r"cu\d+|rocm[\d.]+|xpu|cpu", given.text):
            yield IndexReference(given.text, extra=False, place=given.place)
        return
    for url in given.text.split():
        if index := index_in(url, given.place, extra=_INDEX_OPTIONS[option]):
            yield index
