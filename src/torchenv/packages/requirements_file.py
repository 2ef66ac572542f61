"""pip's requirements files: what they ask for, and what in them is ignored."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from torchenv.errors import InputError
from torchenv.packages.values import CarriedRequirement, PackageListing, PackageNote, SourceFolder

# Gives the text of a file; raises `InputError` where it cannot be read.
ReadText = Callable[[Path], str]


def read_requirements_file(path: Path, read: ReadText) -> PackageListing:
    """Read a requirements file with those that `-r` and `-c` name in it, each once.

    Options that would choose an index or a build are noted and not obeyed. Raises `InputError` for a line
    that is no requirement.
    """
    found = PackageListing()
    _collect(path, read, found, found.requirements, set())
    return found


def _collect(
    path: Path, read: ReadText, found: PackageListing, into: list[CarriedRequirement], seen: set[Path]
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
            _editable(editable[1], path.parent, source, found, into)
        elif line.startswith("-"):
            found.notes.append(PackageNote("ignored", f"{source}: {_without_login(line)} is ignored"))
        else:
            # numpy==2.3.0 --hash=sha256:… --hash=sha256:…
            text, *options = (part.strip() for part in re.split(r"\s(?=--\w)", line))
            hashed = hashed or any(option.startswith("--hash") for option in options)
            _requirement(text.strip(), path.parent, source, found, into)
    if hashed:
        said = f"{path.name}: its hashes are not checked: the new lock has hashes of its own"
        found.notes.append(PackageNote("ignored", said))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number: continued ones joined, comments and empty ones left out."""
    parts: list[str] = []
    first = 1
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        first = first if parts else number
        comment = re.search(r"(^|\s)#", line)
        whole = line[: comment.start()].rstrip() if comment else line
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


def _editable(
    target: str, directory: Path, source: str, found: PackageListing, into: list[CarriedRequirement]
) -> None:
    if re.match(r"(git|hg|svn|bzr)\+", target):
        _requirement(target, directory, source, found, into)
    else:
        found.folders.append(make_folder(directory, target, source, editable=True))


def _requirement(
    text: str, directory: Path, source: str, found: PackageListing, into: list[CarriedRequirement]
) -> None:
    if "${" in text:
        hint = "write the value in its place"
        raise InputError(f"{source}: `{text}` names a variable, which is not looked up", hint=hint)
    if re.match(r"(\w+\+)?\w+://", text):
        text = _name_address(text, source)
    elif re.match(r"[./~]|[A-Za-z]:\\", text) or re.fullmatch(r"\S+\.(whl|zip|tar\.gz)", text):
        if re.search(r"\.(whl|zip|tar\.gz)$", text):
            found.notes.append(note_by_hand(text, source))
        else:
            found.folders.append(make_folder(directory, text, source, editable=False))
        return
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        said = str(error).partition("\n")[0]
        raise InputError(f"{source}: `{text}` is not a requirement: {said}") from None
    if requirement.url is not None and requirement.url.startswith("file:"):
        _of_this_machine(requirement, source, found, into)
    else:
        into.append(CarriedRequirement(text, source))


# Where conda builds: certifi @ file:///home/conda/feedstock_root/build_artifacts/certifi_17…
_BUILT_BY_CONDA = re.compile(r"/(feedstock_root|croot|conda-bld|bld|build_artifacts)/")


def _of_this_machine(
    requirement: Requirement, source: str, found: PackageListing, into: list[CarriedRequirement]
) -> None:
    """Ask for a package by its name where the folder is one that exists on nobody's machine."""
    path = unquote(urlsplit(requirement.url or "").path)
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    with suppress(InvalidWheelFilename):
        version = parse_wheel_filename(path.rpartition("/")[2])[1]
        if _BUILT_BY_CONDA.search(path):
            into.append(CarriedRequirement(f"{requirement.name}=={version}{marker}", source))
            return
    if not _BUILT_BY_CONDA.search(path):
        if re.search(r"\.(whl|zip|tar\.gz)$", path):
            found.notes.append(note_by_hand(path, source))
        else:
            found.folders.append(
                SourceFolder(
                    Path(path),
                    editable=False,
                    source=source,
                    name=requirement.name,
                    extras=tuple(sorted(requirement.extras)),
                )
            )
        return
    taken = "the plan chooses its version" if requirement.name == "torch" else "any version is taken"
    said = f"{source}: {requirement.name} was built by conda, in a folder that is gone: {taken}"
    found.notes.append(PackageNote("any-version", said))
    into.append(CarriedRequirement(f"{requirement.name}{marker}", source))


def make_folder(directory: Path, text: str, source: str, *, editable: bool) -> SourceFolder:
    """Read what names a folder, with the extras that are wanted of it."""
    # .[test,docs]
    path, _, extras = text.partition("[")
    return SourceFolder(
        directory / path, editable=editable, source=source, extras=tuple(re.findall(r"[\w\-.]+", extras))
    )


def _name_address(url: str, source: str) -> str:
    """Write an address as `name @ address`, with the name that it ends with."""
    # git+https://git.example/a.git@v1#egg=a&subdirectory=python
    address, _, fragment = url.partition("#")
    parts = [part for part in fragment.split("&") if part]
    egg = next((part.removeprefix("egg=") for part in parts if part.startswith("egg=")), None)
    if egg is None:
        try:
            egg = str(parse_wheel_filename(unquote(urlsplit(address).path).rpartition("/")[2])[0])
        except InvalidWheelFilename:
            hint = f"write `name @ {url}`"
            raise InputError(f"{source}: {url} does not say which package it is", hint=hint) from None
    rest = "&".join(part for part in parts if not part.startswith("egg="))
    return f"{egg} @ {address}{'#' + rest if rest else ''}"


def note_by_hand(what: str, source: str) -> PackageNote:
    """Note what only this machine has, with the command that installs it."""
    command = f"uv pip install --no-deps {what}"
    return PackageNote(
        "local", f"{source}: {what} is of this machine alone: install it afterwards with `{command}`"
    )


def _without_login(line: str) -> str:
    # --extra-index-url https://user:secret@mirror.example/simple
    return re.sub(r"//[^/@\s]*@", "//", line)
