"""The interpreters that an environment could be built on; each is asked in its own words what it is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from torchenv.host.model import Interpreter, Problem
from torchenv.host.probe.sources import GUEST, Look, SeenEvidence, Sources
from torchenv.system.process import Command
from torchenv.system.values import frozen

SOURCE = "python "
LAUNCHER = "py -0p"

# No wheel of any release in the catalogue is for an older one, and the question needs 3.8.
_OLDEST_MINOR = 8

_NAME = re.compile(r"python(?:3(?:\.(\d+)t?)?)?(?:\.exe)?")


@frozen(kw_only=True)
class Answer:
    """An interpreter with the directory that it is installed in."""

    interpreter: Interpreter
    prefix: str


def look(look: Look, named: Path | None = None) -> dict[str, Command]:
    """Find interpreters; give the question to each, to be asked beside other programs.

    The `named` one goes by the path that it was named by, also where others lead to it or it is a venv's.
    """
    questions: dict[str, Command] = {}
    asked: set[str] = set()
    if named is not None:
        asked.add(os.path.realpath(named))
        questions[f"{SOURCE}{named}"] = _question(str(named))
    for path in _candidates(look.sources):
        real = os.path.realpath(path)
        if real not in asked and not venv_of(path):
            asked.add(real)
            questions[f"{SOURCE}{path}"] = _question(str(path))
    if look.sources.python["system"] == "windows":
        questions[LAUNCHER] = Command(("py", "-0p"))
    return questions


def look_again(look: Look) -> dict[str, Command]:
    """Ask the interpreters that Windows' launcher knows and nothing else led to."""
    asked = {item.source.removeprefix(SOURCE).lower() for item in look.gathered.starting(SOURCE)}
    listed = parse_launcher(look.gathered.read_output(LAUNCHER))
    return {f"{SOURCE}{path}": _question(path) for path in listed if path.lower() not in asked}


def understand(seen: SeenEvidence) -> tuple[tuple[Interpreter, ...], tuple[Problem, ...]]:
    """Return the interpreters that answered, conda's last, and a note on each that did not."""
    problems = []
    found = []
    for evidence in seen.starting(SOURCE):
        path = evidence.source.removeprefix(SOURCE)
        answer = parse_answer(path, evidence.text) if evidence.outcome == "read" else None
        if answer is None:
            why = (evidence.text.strip().splitlines() or ["it prints nothing"])[-1]
            problems.append(Problem("interpreter-broken", path, f"skipping {path}: {why}"))
        else:
            found.append(answer.interpreter)
    return tuple(sorted(found, key=lambda found_item: found_item.conda)), tuple(problems)


def answers(seen: SeenEvidence) -> tuple[Answer, ...]:
    """Return the interpreters that answered, in the order in which they were found."""
    found = (parse_answer(item.source.removeprefix(SOURCE), item.text) for item in seen.starting(SOURCE))
    return tuple(found_item for found_item in found if found_item is not None)


def parse_answer(path: str, text: str) -> Answer | None:
    # version 3.12.7
    # implementation cpython
    # free_threaded False
    # machine x86_64
    # conda False
    # prefix /usr
    said = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    try:
        interpreter = Interpreter(
            version=Version(said["version"]),
            path=path,
            implementation=said["implementation"],
            free_threaded=said["free_threaded"] == "True",
            machine=said["machine"],
            conda=said["conda"] == "True",
        )
        return Answer(interpreter=interpreter, prefix=said["prefix"])
    except (KeyError, ValueError):
        return None


def parse_launcher(text: str) -> tuple[str, ...]:
    #  -V:3.12 *        C:\Users\u\AppData\Local\Programs\Python\Python312\python.exe
    return tuple(re.findall(r"^ -\S+ +(?:\* +)?(\S.*\.exe)\s*$", text, re.MULTILINE))


def first_on_path(sources: Sources) -> Path | None:
    """Return what `python` starts, in a venv or not; None where a shim decides at each start."""
    for directory in _path(sources):
        if _is_shims(directory):
            return None
        for name in ("python", "python3", "python.exe"):
            if os.path.isfile(directory / name):
                return directory / name
    return None


def venv_of(python: Path) -> Path | None:
    """Return the venv that an interpreter belongs to, as it says itself."""
    inside = (python.parent, python.parent.parent)
    return next((item for item in inside if os.path.isfile(item / "pyvenv.cfg")), None)


def python_of(prefix: Path) -> Path:
    """Return the interpreter of a directory that Python is installed in."""
    return prefix / "python.exe" if os.name == "nt" else prefix / "bin" / "python3"


def _question(path: str) -> Command:
    return Command((path, "-I", "-S", str(GUEST / "describe_interpreter.py")))


def _candidates(sources: Sources) -> Iterator[Path]:
    for directory in _path(sources):
        if not _is_shims(directory) and not _is_apple_stub(sources, directory):
            yield from _list_named_pythons(directory)
    for prefix in _prefixes(sources):
        if not _is_old(prefix.name):
            python = python_of(prefix)
            yield from (python,) if os.path.isfile(python) else _list_named_pythons(python.parent)


def _path(sources: Sources) -> Iterator[Path]:
    for directory in dict.fromkeys(sources.variables.get("PATH", "").split(os.pathsep)):
        # A relative directory means something else in every project.
        if directory and Path(directory).is_absolute():
            yield Path(directory)


def _is_shims(directory: Path) -> bool:
    # pyenv, asdf and mise put scripts there that choose at each start, and fail where nothing is
    # chosen. What they choose from is listed by `_prefixes`.
    return directory.name == "shims"


def _is_apple_stub(sources: Sources, directory: Path) -> bool:
    # Without the developer tools, starting /usr/bin/python3 opens a window that offers them.
    tools = Path("/Library/Developer/CommandLineTools")
    return (
        sources.python["system"] == "darwin" and directory == Path("/usr/bin") and not os.path.exists(tools)
    )


def _list_named_pythons(directory: Path) -> list[Path]:
    """Return a directory's interpreters, the most exact name first: python3.12, python3, python."""
    try:
        names = [item.name for item in os.scandir(directory) if _NAME.fullmatch(item.name)]
    except OSError:
        return []
    names.sort(key=len, reverse=True)
    return [directory / name for name in names if not _is_old(name)]


def _is_old(name: str) -> bool:
    # python3.6, 3.6.15, 2.7.18, cpython-3.7.9-linux-x86_64-gnu
    found = re.match(r"(?:python|cpython-)?(\d)\.(\d+)", name)
    return bool(found) and (int(found[1]), int(found[2])) < (3, _OLDEST_MINOR)  # type: ignore[index]


def _prefixes(sources: Sources) -> Iterator[Path]:
    """Yield the directories that tools install Pythons in."""
    variables = sources.variables
    home = Path(variables.get("HOME") or variables.get("USERPROFILE") or "/nonexistent")
    data = Path(variables.get("XDG_DATA_HOME") or home / ".local/share")
    pyenv = [Path(variables["PYENV_ROOT"])] if variables.get("PYENV_ROOT") else [home / ".pyenv"]
    shims = [item.parent for item in _path(sources) if _is_shims(item)]
    parents = [
        Path(variables.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python"),
        Path(variables.get("APPDATA") or home) / "uv/python",
        *(shim / "versions" for shim in (*pyenv, *shims)),
        home / ".asdf/installs/python",
        data / "mise/installs/python",
        Path("/Library/Frameworks/Python.framework/Versions"),
    ]
    for parent in dict.fromkeys(parents):
        try:
            yield from sorted(parent.iterdir())
        except OSError:
            continue
    if variables.get("CONDA_PREFIX"):
        yield Path(variables["CONDA_PREFIX"])
    if variables.get("CONDA_EXE"):
        yield Path(variables["CONDA_EXE"]).parent.parent
    try:
        listed = (home / ".conda/environments.txt").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    yield from (Path(item.strip()) for item in listed if item.strip())
