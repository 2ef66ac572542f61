"""Shell scripts, Dockerfiles, makefiles and prose: their commands, settings and interpreters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchenv.audit.commands import Command, Lines, Word, commands
from torchenv.audit.findings import TextPlace
from torchenv.audit.installs import IndexReference, InstallCommand, find_index_settings, install_of
from torchenv.audit.sources import FileKind, NamedInterpreter, Setting, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# FROM --platform=linux/amd64 docker.io/library/python:3.10-slim AS build
_IMAGE = re.compile(r"(?:^|/)python:(\d+\.\d+)(?![\d])")


def read_script(path: str, kind: FileKind, text: str) -> Source:
    told = [_expand(command) for command in _with_literals(commands(text))]
    return Source(
        path=path,
        kind=kind,
        text=text,
        installs=installs_of(told),
        interpreters=tuple(_images(told)) if kind is FileKind.DOCKERFILE else (),
        settings=(*settings_of(told), *flags_of(told)),
        build=without_hash_comments(text),
    )


def _with_literals(told: Iterable[Command]) -> Iterator[Command]:
    """Fill in variables that were set to a literal before: `ARG CUDA=cu126`, `CUDA=cu126`."""
    known: dict[str, str | None] = {}
    for command in told:
        words = tuple(Word(_fill(word.text, known), word.place) for word in command)
        yield words
        for setting in settings_of([words]):
            # A variable that is set twice may be either.
            known[setting.name] = setting.value if setting.name not in known else None


def _fill(text: str, known: Mapping[str, str | None]) -> str:
    def value(match: re.Match[str]) -> str:
        found = known.get(match[1] or match[2])
        return match[0] if found is None else found

    # $CUDA    ${CUDA}    ${CUDA:-cu126} as long as CUDA is set
    return re.sub(r"\$(?:(\w+)|\{(\w+)(?::?[-+=?][^}]*)?\})", value, text) if "$" in text else text


def _expand(command: Command) -> Command:
    """Return the words of `RUN ["pip", "install", "torch"]`, a command in its exec form."""
    if len(command) < 2 or not command[1].text.startswith("["):
        return command
    # The tokenizer took the quotes off: RUN [pip, install, torch]
    bare = (Word(word.text.strip("[], "), word.place) for word in command[1:])
    split = (Word(part, word.place) for word in bare for part in word.text.split(","))
    return (command[0], *(word for word in split if word.text))


def flags_of(told: Iterable[Command]) -> Iterator[Setting]:
    """Read the long options of commands, `--name value` and `--name=value`, as settings named `--name`."""
    for command in told:
        for word, following in zip(command, (*command[1:], None), strict=True):
            name, equals, value = word.text.partition("=")
            if name.startswith("--") and equals:
                yield Setting(name, _read_literal(value), word.place)
            elif name.startswith("--") and following and not following.text.startswith("-"):
                yield Setting(name, _read_literal(following.text), word.place)


# Programs that install, or that run a project and so need what it asks for.
_RUNNERS = re.compile(
    r"(?:^|/)(?:pip[\d.]*|uv|uvx|pipx|poetry|pdm|hatch|pixi|conda|mamba|micromamba|tox|nox|pytest|make|bash|sh"
    r"|python[\d.]*)$"
)
# What only leads to the name of a tool: `python -m`, `uv run`, `uv tool install`.
_LEADING = frozenset({"-m", "run", "tool", "install", "pip", "-U", "--upgrade", "-q", "--quiet"})
_LINTERS = frozenset(
    {
        *("ruff", "black", "flake8", "mypy", "pre-commit", "isort", "pylint", "build", "twine", "codespell"),
        *("bandit", "pyright", "pydocstyle", "yamllint", "check-manifest", "pip", "setuptools", "wheel"),
    }
)


def may_bring_torch(told: Iterable[Command]) -> bool:
    """Return whether commands that run together may install torch, or run what needs it.

    Linters, builds and other languages do not.
    """
    return any(_brings([word.text for word in command]) for command in told)


def _brings(words: list[str]) -> bool:
    if any("torch" in word for word in words):
        return True
    at = next((n for n, word in enumerate(words) if _RUNNERS.search(word)), None)
    if at is None:
        return False
    rest = [word for word in words[at + 1 :] if word not in _LEADING]
    if any(word in {"-r", "--requirement", "-e", "--editable"} or word.startswith(".") for word in rest):
        return True
    named = [re.split(r"[=<>~!\[;]", word)[0] for word in rest if not word.startswith("-")]
    # Of `python -m ruff check src` the first word is the tool; `pip install ruff mypy` names only tools.
    tools = named if "install" in words else named[:1]
    return not tools or not _LINTERS.issuperset(tools)


def read_prose(path: str, text: str) -> Source:
    """Read the install commands that a text tells its reader to run."""
    lines = Lines(text)
    offsets = [0, *(match.end() for match in re.finditer("\n", text))]
    told = [
        command
        for number, line in _logical_lines(text)
        if " --" in line
        for command in commands(_plain(line), lines, offsets[number])
    ]
    return Source(
        path=path,
        kind=FileKind.PROSE,
        text=text,
        installs=find_quoted_installs(text),
        settings=tuple(flags_of(told)),
    )


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
    for number, line in _logical_lines(text):
        if "install" not in line and "uv add" not in line:
            continue
        for command in commands(_plain(line)):
            if install := install_of(command):
                at = start.line + number if start else number + 1
                found.append(_move_install(install, at, start if number == 0 else None))
    return tuple(found)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers from 0, those that a backslash continues as one."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        last = number
        while lines[last].endswith("\\") and last + 1 < len(lines):
            last += 1
        yield number, "\n".join(lines[number : last + 1])
        number = last + 1


def settings_of(told: Iterable[Command]) -> Iterator[Setting]:
    """Read `export A=b`, `A=b program`, `ENV A=b`, `ENV A b` and `ARG A=b`."""
    for command in told:
        words = command
        if words[0].text.upper() in {"ENV", "ARG"} and len(words) == 3 and "=" not in words[1].text:
            yield Setting(words[1].text, _read_literal(words[2].text), words[1].place)
            continue
        for n, word in enumerate(words):
            name, equals, value = word.text.partition("=")
            # $env:NAME = "value" of PowerShell stands in three words.
            if n == 0 and (match := re.fullmatch(r"(?i)\$env:(\w+)", name)) and not value:
                if len(words) >= 3 and words[1].text == "=":
                    yield Setting(match[1], words[2].text, word.place)
                break
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


_SETTERS = frozenset({"export", "env", "docker", "ENV", "ARG", "set", "SET", "setx"})


def _read_literal(value: str) -> str | None:
    return None if "$" in value else value


def _images(told: Iterable[Command]) -> Iterator[NamedInterpreter]:
    """Yield the interpreters of a Dockerfile's stages, but of those that torch cannot come into."""
    stages: list[list[Command]] = []
    for command in told:
        if command[0].text.upper() == "FROM":
            stages.append([command])
        elif stages:
            stages[-1].append(command)
    for stage in stages:
        copies = any(word.text.startswith("--from") for command in stage[1:] for word in command)
        if len(stages) > 1 and not copies and not may_bring_torch(_without_verb(stage[1:])):
            continue
        for word in stage[0][1:]:
            if found := image_python(word.text, word.place):
                yield found


# Instructions of a Dockerfile that run a command; the others copy or set.
_RUN = frozenset({"RUN", "CMD", "ENTRYPOINT"})


def _without_verb(stage: Iterable[Command]) -> Iterator[Command]:
    # What follows `&&` in a RUN is a command of its own, without a verb.
    for command in stage:
        verb = command[0].text
        if verb.upper() in _RUN:
            yield command[1:]
        elif not verb.isupper():
            yield command


def _plain(line: str) -> str:
    # Back-ticks and quotation marks end a command that is quoted in a sentence.
    return re.sub(r"[`]|^\s*[$>]\s", lambda match: ";" * len(match[0]), line)


def _move_install(install: InstallCommand, line: int, start: TextPlace | None) -> InstallCommand:
    from dataclasses import replace

    shift = start.column - 1 if start else 0

    def at(place: TextPlace) -> TextPlace:
        return TextPlace(line + place.line - 1, place.column + (shift if place.line == 1 else 0))

    return InstallCommand(
        tuple(replace(requirement, place=at(requirement.place)) for requirement in install.asked),
        tuple(IndexReference(index.backend, index.extra, at(index.place)) for index in install.indexes),
    )
