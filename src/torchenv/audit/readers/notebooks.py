"""Jupyter notebooks: the code of all cells as one module, and the commands of their magics."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any

from torchenv.audit.commands import commands
from torchenv.audit.readers.code import installs_in, parse, settings_in
from torchenv.audit.readers.scripts import installs_of, settings_of
from torchenv.audit.sources import FileKind, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages

# !pip install torch    %pip install torch    %env NAME=value
_SHELL_LINE = re.compile(r"\s*(?:!|%(?=pip |conda |uv |mamba ))(.*)")
_SHELL_CELL = re.compile(r"%%(?:bash|sh|script)\b")
_ENV_LINE = re.compile(r"\s*%(?:set_)?env\s+(\w+)(?:=|\s+)(.*)")
_MAGIC_LINE = re.compile(r"\s*[!%]|.*\?\s*$")


def read_notebook(path: str, text: str, breakages: Breakages) -> Source:
    """Read a notebook. Raises `ValueError` where it is not one."""
    try:
        document = json.loads(text)
        cells = [_lines(item) for item in document["cells"] if item["cell_type"] == "code"]
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
        raise ValueError("not a Jupyter notebook of format 4") from None
    python: list[str] = []
    shell: list[str] = []
    for cell in cells:
        code, magic = _split(cell)
        python += code if _parses(code) else [""] * len(code)
        shell += magic
    written = [line for cell in cells for line in cell]
    module = parse("\n".join(python), breakages)
    told = list(commands("\n".join(shell)))
    return Source(
        path=path,
        kind=FileKind.NOTEBOOK,
        text="\n".join(written),
        module=module,
        installs=(*installs_in(module), *installs_of(told)),
        settings=(*settings_in(module), *settings_of(told)),
        file_lines=tuple(_places(text, written)),
    )


def _lines(cell: dict[str, Any]) -> list[str]:
    source = cell["source"]
    return (source if isinstance(source, str) else "".join(source)).splitlines() or [""]


def _split(cell: list[str]) -> tuple[list[str], list[str]]:
    """Part a cell into code and shell, each as many lines as the cell, the other's left blank."""
    if cell[0].startswith("%%"):
        is_shell = bool(_SHELL_CELL.match(cell[0]))
        if is_shell or not re.match(r"%%(?:time|timeit|capture)\b", cell[0]):
            return [""] * len(cell), ["", *(cell[1:] if is_shell else [""] * (len(cell) - 1))]
    code, shell = [], []
    for line in cell:
        indent = line[: len(line) - len(line.lstrip())]
        if match := _ENV_LINE.match(line):
            code.append(f"{indent}pass")
            shell.append(f"export {match[1]}={match[2].strip()}")
        elif match := _SHELL_LINE.match(line):
            code.append(f"{indent}pass")
            shell.append(" " * match.start(1) + match[1])
        else:
            code.append(f"{indent}pass" if _MAGIC_LINE.match(line) else line)
            shell.append("")
    return code, shell


def _parses(code: list[str]) -> bool:
    try:
        ast.parse("\n".join(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _places(text: str, written: list[str]) -> Iterator[int]:
    """Yield the line of the file in which each line of code stands, by walking along the file."""
    at, line = 0, 1
    for word in written:
        found = _find(text, word, at)
        line += text.count("\n", at, found)
        at = found
        yield line


def _find(text: str, code: str, at: int) -> int:
    # A line of a cell is a JSON string of its own; in a rarer form the whole cell is one string.
    spelled = {json.dumps(code)[1:-1], json.dumps(code, ensure_ascii=False)[1:-1]}
    whole = [f'"{item}{end}"' for item in spelled for end in ("\\n", "")]
    for candidates in (whole, spelled):
        if places := [n for candidate in candidates if (n := text.find(candidate, at)) >= 0]:
            return min(places) + 1
    return at
