"""Shell scripts, Dockerfiles, makefiles and prose: their commands, settings and interpreters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchenv.audit.commands import Command, commands
from torchenv.audit.findings import TextPlace
from torchenv.audit.installs import IndexReference, InstallCommand, find_index_settings, install_of
from torchenv.audit.sources import FileKind, NamedInterpreter, Setting, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# FROM --platform=linux/amd64 docker.io/library/python:3.10-slim AS build
_IMAGE = re.compile(r"(?:^|/)python:(\d+\.\d+)(?![\d])")


def read_script(path: str, kind: FileKind, text: str) -> Source:
    told = list(commands(text))
    return Source(
        path=path,
        kind=kind,
        text=text,
        installs=installs_of(told),
        interpreters=tuple(_images(told)) if kind is FileKind.DOCKERFILE else (),
        settings=tuple(settings_of(told)),
        build=without_hash_comments(text),
    )


def read_prose(path: str, text: str) -> Source:
    """Read the install commands that a text tells its reader to run."""
    return Source(path=path, kind=FileKind.PROSE, text=text, installs=find_quoted_installs(text))


def installs_of(told: Iterable[Command]) -> tuple[InstallCommand, ...]:
    """Read install commands; indexes set by assignment stand for all that the commands ask."""
    told = list(told)
    installs = [install for command in told if (install := install_of(command))]
    indexes = tuple(index for command in told for index in find_index_settings(command))
    if indexes:
        asked = tuple(requirement for install in installs for requirement in install.asked)
        installs.append(InstallCommand(asked, indexes))
    return tuple(installs)


def find_quoted_installs(text: str, start: TextPlace | None = None) -> tuple[InstallCommand, ...]:
    """Read install commands out of running text, where they may stand in back-ticks.

    `start` is where the text begins in its file, if it is a part of one.
    """
    found: list[InstallCommand] = []
    for number, line in enumerate(text.splitlines()):
        if "install" not in line and "uv add" not in line:
            continue
        for command in commands(_plain(line)):
            if install := install_of(command):
                at = start.line + number if start else number + 1
                found.append(_move_install(install, at, start if number == 0 else None))
    return tuple(found)


def settings_of(told: Iterable[Command]) -> Iterator[Setting]:
    """Read `export A=b`, `A=b program`, `ENV A=b`, `ENV A b` and `ARG A=b`."""
    for command in told:
        words = command
        if words[0].text.upper() in {"ENV", "ARG"} and len(words) == 3 and "=" not in words[1].text:
            yield Setting(words[1].text, _read_literal(words[2].text), words[1].place)
            continue
        for n, word in enumerate(words):
            name, equals, value = word.text.partition("=")
            if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
                yield Setting(name, _read_literal(value), word.place)
            elif n and word.text not in {"-e", "--env"} and words[0].text not in _SETTERS:
                break


def without_hash_comments(text: str) -> str:
    """Blank the comments of a makefile, CMake file or script, so that offsets stay."""
    return re.sub(r"(?<![^\s])#[^\n]*", lambda match: " " * len(match[0]), text)


def image_python(text: str, place: TextPlace) -> NamedInterpreter | None:
    """Read the interpreter out of the name of an official Python image."""
    match = _IMAGE.search(text)
    return NamedInterpreter(match[1], place) if match else None


_SETTERS = frozenset({"export", "env", "docker", "ENV", "ARG"})


def _read_literal(value: str) -> str | None:
    return None if "$" in value else value


def _images(told: Iterable[Command]) -> Iterator[NamedInterpreter]:
    for command in told:
        if command[0].text.upper() == "FROM":
            for word in command[1:]:
                if found := image_python(word.text, word.place):
                    yield found


def _plain(line: str) -> str:
    # Back-ticks and quotation marks end a command that is quoted in a sentence.
    return re.sub(r"[`]|^\s*[$>]\s", lambda match: ";" * len(match[0]), line)


def _move_install(install: InstallCommand, line: int, start: TextPlace | None) -> InstallCommand:
    from dataclasses import replace

    shift = start.column - 1 if start else 0

    def at(place: TextPlace) -> TextPlace:
        return TextPlace(line, place.column + shift)

    return InstallCommand(
        tuple(replace(requirement, place=at(requirement.place)) for requirement in install.asked),
        tuple(IndexReference(index.backend, index.extra, at(index.place)) for index in install.indexes),
    )
