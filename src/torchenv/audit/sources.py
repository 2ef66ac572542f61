"""What the rules look at: one file, told as the facts that were read out of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from torchenv.audit.findings import Place
    from torchenv.audit.installs import Install
    from torchenv.audit.modules import Module
    from torchenv.audit.native import Native


class Kind(Enum):
    """What a file is, by its name."""

    PYTHON = auto()
    NOTEBOOK = auto()
    SETUP_PY = auto()
    PYPROJECT = auto()
    SETUP_CFG = auto()
    REQUIREMENTS = auto()
    LOCK = auto()
    PYTHON_PIN = auto()
    CI = auto()
    YAML = auto()
    DOCKERFILE = auto()
    SHELL = auto()
    PROSE = auto()
    CMAKE = auto()
    MAKE = auto()
    CODE = auto()
    NATIVE = auto()


CODE = frozenset({Kind.PYTHON, Kind.NOTEBOOK, Kind.SETUP_PY})
CONFIGURATION = frozenset({Kind.CI, Kind.YAML})
SCRIPTS = frozenset({Kind.DOCKERFILE, Kind.SHELL, Kind.MAKE}) | CONFIGURATION
PROJECT = frozenset({Kind.SETUP_PY, Kind.PYPROJECT, Kind.SETUP_CFG, Kind.REQUIREMENTS, Kind.LOCK, Kind.YAML})
INSTALLING = CODE | SCRIPTS | PROJECT | {Kind.PROSE}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that a file names: a range it admits, or the one version it takes."""

    wanted: SpecifierSet | str
    place: Place


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable that a file sets; the value is None where it is computed."""

    name: str
    value: str | None
    place: Place


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value of a YAML document with the keys that lead to it; members of lists add no key."""

    keys: tuple[str, ...]
    text: str
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file. What its kind does not have is empty.

    `text` is what places count in; for a notebook it is the code of its cells, and `file_lines`
    says where each of its lines stands in the file. `build` is the text without its comments.
    """

    path: str
    kind: Kind
    text: str = ""
    module: Module | None = None
    installs: tuple[Install, ...] = ()
    interpreters: tuple[Interpreter, ...] = ()
    settings: tuple[Setting, ...] = ()
    scalars: tuple[Scalar, ...] = ()
    build: str = ""
    native: Native | None = None
    file_lines: tuple[int, ...] = field(default=(), repr=False)


_NAMES = {
    "setup.py": Kind.SETUP_PY,
    "pyproject.toml": Kind.PYPROJECT,
    "pipfile": Kind.PYPROJECT,
    "setup.cfg": Kind.SETUP_CFG,
    "uv.lock": Kind.LOCK,
    "poetry.lock": Kind.LOCK,
    "pdm.lock": Kind.LOCK,
    ".python-version": Kind.PYTHON_PIN,
    "runtime.txt": Kind.PYTHON_PIN,
    "cmakelists.txt": Kind.CMAKE,
    "makefile": Kind.MAKE,
    "gnumakefile": Kind.MAKE,
    "meson.build": Kind.MAKE,
    "action.yml": Kind.CI,
    "action.yaml": Kind.CI,
    ".travis.yml": Kind.CI,
}
_SUFFIXES = {
    ".py": Kind.PYTHON,
    ".ipynb": Kind.NOTEBOOK,
    ".yml": Kind.YAML,
    ".yaml": Kind.YAML,
    ".sh": Kind.SHELL,
    ".bash": Kind.SHELL,
    ".slurm": Kind.SHELL,
    ".sbatch": Kind.SHELL,
    ".env": Kind.SHELL,
    ".mk": Kind.MAKE,
    ".cmake": Kind.CMAKE,
    ".md": Kind.PROSE,
    ".rst": Kind.PROSE,
    ".txt": Kind.PROSE,
    **dict.fromkeys(
        (".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hip", ".mm"), Kind.CODE
    ),
}
_SUFFIXES[".so"] = Kind.NATIVE
_PATTERNS = (
    (re.compile(r"\.so(\.\d+)+$"), Kind.NATIVE),
    (re.compile(r"(^|/)(dockerfile|containerfile)[^/]*$|\.dockerfile$"), Kind.DOCKERFILE),
    (
        re.compile(r"(^|/)([^/]*(requirements|constraints)[^/]*|requirements/.+)\.(txt|in)$"),
        Kind.REQUIREMENTS,
    ),
    (re.compile(r"(^|/)pylock(\.[^/]*)?\.toml$"), Kind.LOCK),
    (re.compile(r"(^|/)\.(github|circleci)/.*\.ya?ml$"), Kind.CI),
    (re.compile(r"(^|/)(\.gitlab-ci|azure-pipelines|bitbucket-pipelines)[^/]*\.ya?ml$"), Kind.CI),
)


def kind_of(path: str) -> Kind | None:
    """Say what a file is by its path, written with `/`; None for one that no rule reads."""
    lowered = path.lower()
    pure = PurePosixPath(lowered)
    if named := _NAMES.get(pure.name):
        return named
    for pattern, kind in _PATTERNS:
        if pattern.search(lowered):
            return kind
    return _SUFFIXES.get(pure.suffix)
