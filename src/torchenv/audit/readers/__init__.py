"""Bytes of a file to the facts that rules look at: one reader for each family of files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchenv.audit.readers import code, notebooks, projects, scripts, yamls
from torchenv.audit.sources import FileKind, Source

if TYPE_CHECKING:
    from torchenv.audit.breakages import Breakages


def read(path: str, kind: FileKind, content: bytes, breakages: Breakages) -> Source:
    """Read one file. Raises `ValueError` that says why it cannot be read as its kind."""
    if kind in {FileKind.PYTHON, FileKind.SETUP_PY}:
        return code.read_python(path, kind, content, breakages)
    text = content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    match kind:
        case FileKind.NOTEBOOK:
            return notebooks.read_notebook(path, text, breakages)
        case FileKind.PYPROJECT:
            return projects.read_pyproject(path, text)
        case FileKind.SETUP_CFG:
            return projects.read_setup_cfg(path, text)
        case FileKind.REQUIREMENTS:
            return projects.read_requirements(path, text)
        case FileKind.LOCK:
            return projects.read_lock(path, text)
        case FileKind.PYTHON_PIN:
            return projects.read_python_pin(path, text)
        case FileKind.CI | FileKind.YAML:
            return yamls.read_yaml(path, kind, text)
        case FileKind.JSON:
            # YAML takes JSON as it is, but for tabs between its values.
            return yamls.read_yaml(path, kind, text.replace("\t", " "))
        case FileKind.DOCKERFILE | FileKind.SHELL | FileKind.MAKE:
            return scripts.read_script(path, kind, text)
        case FileKind.PROSE:
            return scripts.read_prose(path, text)
        case FileKind.CMAKE:
            return Source(
                path=path,
                kind=kind,
                text=text,
                build=scripts.without_hash_comments(_without_brackets(text)),
            )
        case _:
            return Source(path=path, kind=kind, text=text, build=_without_c_comments(text))


def _without_c_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", _blank, text, flags=re.DOTALL)


def _without_brackets(text: str) -> str:
    # #[[ a comment of CMake ]]    #[=======[.rst: a manual in one ]=======]
    return re.sub(r"#\[(=*)\[.*?\]\1\]", _blank, text, flags=re.DOTALL)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])
