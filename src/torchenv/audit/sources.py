"""What the rules look at: one file, told as the facts that were read out of it."""

from __future__ import annotations

import re
from dataclasses import field
from enum import Enum, auto
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from torchenv.system.values import frozen

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from torchenv.audit.findings import TextPlace
    from torchenv.audit.installs import InstallCommand
    from torchenv.audit.modules import Module
    from torchenv.audit.native import Native


class FileKind(Enum):
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
    JSON = auto()
    DOCKERFILE = auto()
    SHELL = auto()
    PROSE = auto()
    CMAKE = auto()
    MAKE = auto()
    CODE = auto()
    NATIVE = auto()


CODE = frozenset({FileKind.PYTHON, FileKind.NOTEBOOK, FileKind.SETUP_PY})
CONFIGURATION = frozenset({FileKind.CI, FileKind.YAML, FileKind.JSON})
SCRIPTS = frozenset({FileKind.DOCKERFILE, FileKind.SHELL, FileKind.MAKE}) | CONFIGURATION
PROJECT = frozenset(
    {
        FileKind.SETUP_PY,
        FileKind.PYPROJECT,
        FileKind.SETUP_CFG,
        FileKind.REQUIREMENTS,
        FileKind.LOCK,
        FileKind.YAML,
    }
)
INSTALLING = CODE | SCRIPTS | PROJECT | {FileKind.PROSE}


# The largest files that are read, in bytes: what a syntax tree or a YAML tree costs in time (about 1 s a MB)
# and memory (about 250 MB a MB of Python). A lock and a notebook are mostly what nobody asks about.
LARGEST = {
    FileKind.PYTHON: 1_500_000,
    FileKind.SETUP_PY: 1_500_000,
    FileKind.YAML: 3_000_000,
    FileKind.JSON: 3_000_000,
    FileKind.NOTEBOOK: 64_000_000,
    FileKind.LOCK: 32_000_000,
}
LARGEST_TEXT = 5_000_000


@frozen
class NamedInterpreter:
    """A Python that a file names: a range it admits, or the one version it takes."""

    wanted: SpecifierSet | str
    place: TextPlace


@frozen
class Setting:
    """An environment variable that a file sets; the value is None where it is computed."""

    name: str
    value: str | None
    place: TextPlace


@frozen
class Scalar:
    """A value of a YAML document with the keys that lead to it; members of lists add no key."""

    keys: tuple[str, ...]
    text: str
    place: TextPlace


@frozen(kw_only=True)
class Source:
    """One file. What its kind does not have is empty.

    `text` is what places count in; for a notebook it is the code of its cells, and `file_lines`
    says where each of its lines stands in the file. `build` is the text without its comments.
    """

    path: str
    kind: FileKind
    text: str = ""
    module: Module | None = None
    installs: tuple[InstallCommand, ...] = ()
    interpreters: tuple[NamedInterpreter, ...] = ()
    settings: tuple[Setting, ...] = ()
    scalars: tuple[Scalar, ...] = ()
    build: str = ""
    native: Native | None = None
    file_lines: tuple[int, ...] = field(default=(), repr=False)


_NAMES = {
    "setup.py": FileKind.SETUP_PY,
    "pyproject.toml": FileKind.PYPROJECT,
    "pipfile": FileKind.PYPROJECT,
    "pixi.toml": FileKind.PYPROJECT,
    "hatch.toml": FileKind.PYPROJECT,
    "tox.ini": FileKind.SETUP_CFG,
    "setup.cfg": FileKind.SETUP_CFG,
    "uv.lock": FileKind.LOCK,
    "poetry.lock": FileKind.LOCK,
    "pdm.lock": FileKind.LOCK,
    ".python-version": FileKind.PYTHON_PIN,
    "runtime.txt": FileKind.PYTHON_PIN,
    "cmakelists.txt": FileKind.CMAKE,
    "makefile": FileKind.MAKE,
    "gnumakefile": FileKind.MAKE,
    "meson.build": FileKind.MAKE,
    "action.yml": FileKind.CI,
    "action.yaml": FileKind.CI,
    ".travis.yml": FileKind.CI,
}
_SUFFIXES = {
    ".py": FileKind.PYTHON,
    ".ipynb": FileKind.NOTEBOOK,
    ".yml": FileKind.YAML,
    ".yaml": FileKind.YAML,
    ".sh": FileKind.SHELL,
    ".bash": FileKind.SHELL,
    ".ps1": FileKind.SHELL,
    ".bat": FileKind.SHELL,
    ".cmd": FileKind.SHELL,
    ".json": FileKind.JSON,
    ".jsonc": FileKind.JSON,
    ".slurm": FileKind.SHELL,
    ".sbatch": FileKind.SHELL,
    ".env": FileKind.SHELL,
    ".mk": FileKind.MAKE,
    ".cmake": FileKind.CMAKE,
    ".md": FileKind.PROSE,
    ".rst": FileKind.PROSE,
    ".txt": FileKind.PROSE,
    **dict.fromkeys(
        (".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hip", ".mm"), FileKind.CODE
    ),
}
_SUFFIXES[".so"] = FileKind.NATIVE
_PATTERNS = (
    (re.compile(r"\.so(\.\d+)+$"), FileKind.NATIVE),
    (re.compile(r"(^|/)(dockerfile|containerfile)[^/]*$|\.dockerfile$"), FileKind.DOCKERFILE),
    (
        re.compile(r"(^|/)([^/]*(requirements|constraints)[^/]*|requirements/.+)\.(txt|in)$"),
        FileKind.REQUIREMENTS,
    ),
    (re.compile(r"(^|/)pylock(\.[^/]*)?\.toml$"), FileKind.LOCK),
    (re.compile(r"(^|/)\.(github|circleci)/.*\.ya?ml$"), FileKind.CI),
    (re.compile(r"(^|/)(\.gitlab-ci|azure-pipelines|bitbucket-pipelines)[^/]*\.ya?ml$"), FileKind.CI),
)


def kind_of(path: str) -> FileKind | None:
    """Describe what a file is by its path, written with `/`; None for one that no rule reads."""
    lowered = path.lower()
    pure = PurePosixPath(lowered)
    if named := _NAMES.get(pure.name):
        return named
    for pattern, kind in _PATTERNS:
        if pattern.search(lowered):
            return kind
    return _SUFFIXES.get(pure.suffix)
