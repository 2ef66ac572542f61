"""pip's requirements files: what they ask for, and what in them is not obeyed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from torchenv.errors import InputError
from torchenv.packages.values import CarriedRequirement, PackageNote

# Gives the text of a file; raises `InputError` where it cannot be read.
ReadText = Callable[[Path], str]


@dataclass(slots=True)
class RequirementsList:
    """What a requirements file and those that it names list."""

    requirements: list[CarriedRequirement] = field(default_factory=list)
    constraints: list[CarriedRequirement] = field(default_factory=list)
    notes: list[PackageNote] = field(default_factory=list)


def read_requirements_file(path: Path, read: ReadText) -> RequirementsList:
    """Read a requirements file with those that `-r` and `-c` name in it, each once.

    Options that would choose an index or a build are noted and not obeyed. Raises `InputError` for a line
    that is no requirement.
    """
    found = RequirementsList()
    _collect(path, read, found, found.requirements, set())
    return found


def _collect(
    path: Path, read: ReadText, found: RequirementsList, into: list[CarriedRequirement], seen: set[Path]
) -> None:
    if path in seen:
        return
    seen.add(path)
    hashed = False
    for number, line in _lines(read(path)):
        source = f"{path.name}:{number}"
        if nested := re.match(r"(-r|--requirement|-c|--constraint)[\s=]\s*(\S+)$|(-r|-c)(\S+)$", line):
            option, name = (nested[1], nested[2]) if nested[1] else (nested[3], nested[4])
            constrains = option in {"-c", "--constraint"} or into is found.constraints
            target = found.constraints if constrains else found.requirements
            _collect(_beside(path, name, source), read, found, target, seen)
        elif editable := re.match(r"(?:-e|--editable)[\s=]?\s*(\S+)", line):
            _editable(editable[1], source, found, into)
        elif line.startswith("-"):
            found.notes.append(PackageNote("ignored", f"{source}: {_without_login(line)} is not obeyed"))
        else:
            # numpy==2.3.0 --hash=sha256:… --hash=sha256:…
            text, *options = re.split(r"\s+(?=--\w)", line)
            hashed = hashed or any(each.startswith("--hash") for each in options)
            _requirement(text.strip(), source, found, into)
    if hashed:
        said = f"{path.name}: its hashes are not checked: the new lock has hashes of its own"
        found.notes.append(PackageNote("ignored", said))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number: continued ones joined, comments and empty ones left out."""
    parts: list[str] = []
    first = 1
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        first = first if parts else number
        whole = re.sub(r"(^|\s+)#.*$", "", line)
        if whole == line and line.endswith("\\"):
            parts.append(line[:-1])
            continue
        joined = "".join((*parts, whole)).strip()
        parts = []
        if joined:
            yield first, joined
    if rest := "".join(parts).strip():
        yield first, rest


def _beside(path: Path, name: str, source: str) -> Path:
    if re.match(r"\w+://", name):
        hint = "save it beside this file and name it by its path"
        raise InputError(f"{source}: {name} is not fetched", hint=hint)
    return Path(os.path.normpath(path.parent / name))


def _editable(target: str, source: str, found: RequirementsList, into: list[CarriedRequirement]) -> None:
    if re.match(r"(git|hg|svn|bzr)\+", target):
        _requirement(target, source, found, into)
    else:
        found.notes.append(_by_hand(f"-e {target}", source))


def _requirement(text: str, source: str, found: RequirementsList, into: list[CarriedRequirement]) -> None:
    if "${" in text:
        hint = "write the value in its place"
        raise InputError(f"{source}: {text!r} names a variable, which is not looked up", hint=hint)
    if re.match(r"(\w+\+)?\w+://", text):
        text = _name_address(text, source)
    elif re.match(r"[./~]|[A-Za-z]:\\", text) or re.fullmatch(r"\S+\.(whl|zip|tar\.gz)", text):
        found.notes.append(_by_hand(text, source))
        return
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        said = str(error).partition("\n")[0]
        raise InputError(f"{source}: {text!r} is not a requirement: {said}") from None
    if requirement.url is not None and requirement.url.startswith("file:"):
        found.notes.append(_by_hand(unquote(urlsplit(requirement.url).path), source))
    else:
        into.append(CarriedRequirement(text, source))


def _name_address(url: str, source: str) -> str:
    """Write an address as `name @ address`, with the name that it ends with."""
    # git+https://git.example/a.git@v1#egg=a&subdirectory=python
    address, _, fragment = url.partition("#")
    parts = [each for each in fragment.split("&") if each]
    egg = next((each.removeprefix("egg=") for each in parts if each.startswith("egg=")), None)
    if egg is None:
        try:
            egg = str(parse_wheel_filename(unquote(urlsplit(address).path).rpartition("/")[2])[0])
        except InvalidWheelFilename:
            hint = f"write `name @ {url}`"
            raise InputError(f"{source}: {url} does not say which package it is", hint=hint) from None
    rest = "&".join(each for each in parts if not each.startswith("egg="))
    return f"{egg} @ {address}{'#' + rest if rest else ''}"


def _by_hand(what: str, source: str) -> PackageNote:
    command = f"uv pip install --no-deps {what}"
    return PackageNote(
        "local", f"{source}: {what} is of this machine alone: install it afterwards with `{command}`"
    )


def _without_login(line: str) -> str:
    # --extra-index-url https://user:secret@mirror.example/simple
    return re.sub(r"//[^/@\s]*@", "//", line)
