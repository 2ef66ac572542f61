"""Files that say what a project needs: pyproject.toml, setup.cfg, requirements, locks, pins."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from torchenv.audit.commands import Lines, Word, commands
from torchenv.audit.findings import TextPlace
from torchenv.audit.installs import (
    IndexReference,
    InstallCommand,
    NamedRequirement,
    index_in,
    install_of,
    parse_requirement,
)
from torchenv.audit.sources import FileKind, NamedInterpreter, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# name = "torch"
_NAME_LINE = re.compile(r'^name\s*=\s*"([^"\n]*)"', re.MULTILINE)
_PIP_INSTALL = (Word("pip", TextPlace(1)), Word("install", TextPlace(1)))


def read_pyproject(path: str, text: str) -> Source:
    """Read pyproject.toml or Pipfile: all that it lists, under whichever tool, as one install."""
    table = _toml(text)
    find = _Finder(text)
    return Source(
        path=path,
        kind=FileKind.PYPROJECT,
        text=text,
        installs=(InstallCommand(tuple(_read_list(table, find)), tuple(_indexes(table, find))),),
        interpreters=tuple(_pythons(table, find)),
    )


def read_setup_cfg(path: str, text: str) -> Source:
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error).splitlines()[0]) from None
    find = _Finder(text)
    values = [parser.get("options", "install_requires", fallback="")]
    # tox.ini: [testenv] and [testenv:py310], each with its deps
    values += [parser.get(section, "deps", fallback="") for section in parser.sections()]
    if parser.has_section("options.extras_require"):
        values += [value for _, value in parser.items("options.extras_require")]
    # py310: torch==2.14.1 is a line of tox with its condition.
    lines = [re.sub(r"^[\w{},.-]+:\s*(?!/)", "", line) for value in values for line in value.splitlines()]
    python = parser.get("options", "python_requires", fallback="")
    return Source(
        path=path,
        kind=FileKind.SETUP_CFG,
        text=text,
        installs=(InstallCommand(tuple(_parse_all(lines, find))),),
        interpreters=tuple(_interpreter(python, find.place("python_requires"))),
    )


def read_requirements(path: str, text: str) -> Source:
    """Read a requirements file, whose index options hold for the whole file."""
    wanted: list[NamedRequirement] = []
    indexes: list[IndexReference] = []
    for number, line in enumerate(text.splitlines(), 1):
        requirement = re.sub(r"(^|\s)#.*| --hash.*|\\\s*$", "", line).strip()
        if parsed := parse_requirement(requirement, TextPlace(number, line.find(requirement) + 1)):
            wanted.append(parsed)
    for option in commands(text):
        if option[0].text.startswith("-"):
            # The same options as on a command line.
            install = install_of((*_PIP_INSTALL, *option))
            indexes += install.indexes if install else ()
    install = InstallCommand(tuple(wanted), tuple(indexes))
    return Source(path=path, kind=FileKind.REQUIREMENTS, text=text, installs=(install,))


def read_lock(path: str, text: str) -> Source:
    """Read pylock.toml, uv.lock, poetry.lock or pdm.lock: exact versions."""
    table = _toml(text)
    locked = [*_tables(table.get("package")), *_tables(table.get("packages"))]
    lines = Lines(text)
    places = {match[1]: lines.place(match.start()) for match in reversed([*_NAME_LINE.finditer(text)])}
    wanted: list[NamedRequirement] = []
    for package in locked:
        name, version = package.get("name"), package.get("version")
        if not isinstance(name, str) or not isinstance(version, str):
            continue
        if found := parse_requirement(f"{name}=={version}", places.get(name, TextPlace(1))):
            wanted.append(found)
    return Source(path=path, kind=FileKind.LOCK, text=text, installs=(InstallCommand(tuple(wanted)),))


def read_python_pin(path: str, text: str) -> Source:
    # 3.10.12    cpython-3.10    python-3.10.14
    found = re.finditer(r"^(?:cpython[-@]?|python-)?(3\.\d+)(?:\.\d+)?t?\s*$", text, re.MULTILINE)
    lines = Lines(text)
    interpreters = tuple(NamedInterpreter(match[1], lines.place(match.start())) for match in found)
    return Source(path=path, kind=FileKind.PYTHON_PIN, text=text, interpreters=interpreters)


class _Finder:
    """Finds where a value stands, as TOML and INI readers do not keep it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = Lines(text)
        self._after: dict[str, int] = {}

    def place(self, value: str) -> TextPlace:
        """Return the place of the next time that this value is written."""
        at = self._text.find(value, self._after.get(value, 0))
        if at < 0:
            return TextPlace(1)
        self._after[value] = at + len(value)
        return self._lines.place(at)


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not valid TOML: {error}") from None


def _at(table: object, *keys: str) -> Any:
    """Follow keys through nested tables; an empty table where they lead nowhere."""
    for key in keys:
        table = table.get(key, {}) if isinstance(table, dict) else {}
    return table


def _tables(value: object) -> Iterator[dict[str, Any]]:
    """Yield the tables of a list, or of a table of tables; nothing of anything else."""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    yield from (member for member in members if isinstance(member, dict))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)


# Lists of requirements, under whichever tool.
_LISTS = (
    ("project", "dependencies"),
    ("project", "optional-dependencies"),
    ("dependency-groups",),
    ("build-system", "requires"),
    ("tool", "uv", "dev-dependencies"),
    ("tool", "uv", "constraint-dependencies"),
    ("tool", "uv", "override-dependencies"),
    ("tool", "pdm", "dev-dependencies"),
)
# Tables of names and versions.
_TABLES = (
    ("tool", "poetry", "dependencies"),
    ("packages",),
    ("tool", "pixi", "dependencies"),
    ("tool", "pixi", "pypi-dependencies"),
    ("dependencies",),
    ("pypi-dependencies",),
)


def _read_list(table: dict[str, Any], find: _Finder) -> Iterator[NamedRequirement]:
    for keys in _LISTS:
        yield from _parse_all(_strings(_at(table, *keys)), find)
    # An environment of hatch, in pyproject.toml or in hatch.toml.
    for environments in (_at(table, "tool", "hatch", "envs"), _at(table, "envs")):
        for environment in _tables(environments):
            for key in ("dependencies", "extra-dependencies"):
                yield from _parse_all(_strings(environment.get(key, ())), find)
    named = [_at(table, *keys) for keys in _TABLES]
    for group in (*_tables(_at(table, "tool", "poetry", "group")), *_tables(_features(table))):
        named += [_at(group, "dependencies"), _at(group, "pypi-dependencies")]
    for dependencies in named:
        if isinstance(dependencies, dict):
            yield from _parse_table(dependencies, find)


def _features(table: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for features in (_at(table, "tool", "pixi", "feature"), _at(table, "feature")):
        found.update(features if isinstance(features, dict) else {})
    return found


def _parse_table(dependencies: dict[str, Any], find: _Finder) -> Iterator[NamedRequirement]:
    for name, wanted in dependencies.items():
        version = _at(wanted, "version") if isinstance(wanted, dict) else wanted
        ranged = _poetry_range(version) if isinstance(version, str) else ""
        spelled = _CONDA_SPELLINGS.get(name, name)
        if parsed := parse_requirement(f"{spelled}{ranged}", find.place(f"{name} ")):
            yield parsed


# What pixi takes from conda's channels is called otherwise there.
_CONDA_SPELLINGS = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch"}


def _parse_all(texts: Iterable[str], find: _Finder) -> Iterator[NamedRequirement]:
    for text in texts:
        stripped = text.strip()
        if stripped and (parsed := parse_requirement(stripped, find.place(stripped))):
            yield parsed


def _indexes(table: dict[str, Any], find: _Finder) -> Iterator[IndexReference]:
    uv = _at(table, "tool", "uv")
    by_choice = _find_chosen_by_extra(uv)
    listed = uv.get("index", []) if isinstance(uv, dict) else []
    ordinary = [index for index in _tables(listed) if index.get("name") not in by_choice]
    for addresses, extra in (
        (ordinary, False),
        (_at(table, "tool", "poetry", "source"), False),
        (_at(table, "tool", "pdm", "source"), False),
        (table.get("source", []), False),
        (_at(uv, "index-url"), False),
        (_at(uv, "extra-index-url"), True),
        (_at(uv, "pip", "index-url"), False),
        (_at(uv, "pip", "extra-index-url"), True),
        (_at(table, "tool", "pixi", "pypi-options"), True),
        (_at(table, "pypi-options"), True),
        (_at(table, "tool", "hatch", "envs"), True),
    ):
        for url in _strings(addresses):
            if "/" in url and (index := index_in(url, find.place(url), extra=extra)):
                yield index
    for backend in (_at(uv, "pip", "torch-backend"), _at(uv, "torch-backend")):
        if isinstance(backend, str):
            command = (
                *_PIP_INSTALL,
                Word("--torch-backend", TextPlace(1)),
                Word(backend, find.place(backend)),
            )
            install = install_of(command)
            yield from install.indexes if install else ()


def _find_chosen_by_extra(uv: object) -> frozenset[str]:
    """Return the names of uv's indexes that a package is bound to for one extra or group alone.

    Whoever asks for that extra has chosen its backend, and beside it stand others for the release.
    """
    return (
        frozenset(
            str(source.get("index"))
            for sources in _at(uv, "sources").values()
            for source in _tables(sources if isinstance(sources, list) else [sources])
            if "index" in source and ("extra" in source or "group" in source)
        )
        if isinstance(_at(uv, "sources"), dict)
        else frozenset()
    )


def _pythons(table: dict[str, Any], find: _Finder) -> Iterator[NamedInterpreter]:
    python = _at(table, "project", "requires-python")
    if isinstance(python, str):
        yield from _interpreter(python, find.place("requires-python"))
    python = _at(table, "tool", "poetry", "dependencies", "python")
    if isinstance(python, str):
        yield from _interpreter(_poetry_range(python), find.place("python ="))
    python = _at(table, "requires", "python_version")
    if isinstance(python, str):
        yield NamedInterpreter(python, find.place("python_version"))


def _interpreter(text: str, place: TextPlace) -> Iterator[NamedInterpreter]:
    try:
        if text:
            yield NamedInterpreter(SpecifierSet(text), place)
    except InvalidSpecifier:
        return


def _poetry_range(text: str) -> str:
    """Write a range of Poetry as PEP 440 does: `^3.10` is `>=3.10,<4`, `~2.1` is `>=2.1,<2.2`."""
    if text.strip() == "*":
        return ""
    ranges = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([\^~])?\s*(\d+)(?:\.(\d+))?([.\w+]*)\s*", part)
        if not match:
            ranges.append(part.strip())
        elif match[1] is None:
            ranges.append(f"=={part.strip()}")
        else:
            wanted = part.strip()[1:].strip()
            major, minor = int(match[2]), int(match[3] or 0)
            last = f"{major}.{minor + 1}" if match[1] == "~" or major == 0 else str(major + 1)
            ranges.append(f">={wanted},<{last}")
    return ",".join(ranges)
