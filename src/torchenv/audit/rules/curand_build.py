"""Builds that link against a library which the release no longer brings, such as cuRAND."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from torchenv.audit.commands import Lines
from torchenv.audit.findings import Severity, TextPlace
from torchenv.audit.modules import Module, argument
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import CODE, SCRIPTS, FileKind, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages, Unbundled

# target_link_libraries(mine PRIVATE CUDA::cublas CUDA::curand)    list(APPEND LIBS caffe2::curand)
_CMAKE_CALL = re.compile(r"(?<!\w)(target_link_libraries|link_libraries|set|list)\s*\(([^)]*)\)")


class _Patterns(NamedTuple):
    """How builds name one library."""

    flag: re.Pattern[str]
    option: re.Pattern[str]
    cmake_library: re.Pattern[str]
    cmake_plain: re.Pattern[str]
    host_call: re.Pattern[str]


@cache
def _patterns(lost: Unbundled) -> _Patterns:
    name = re.escape(lost.library)
    return _Patterns(
        # -lcurand    find_library('curand')
        flag=re.compile(rf"(?<![\w-])-l{name}(?!\w)|find_library\(\s*['\"]{name}['\"]"),
        option=re.compile(rf"(?<![\w-])-l{name}(?!\w)"),
        cmake_library=re.compile(rf"(?<![\w:])(?:(?:CUDA|caffe2)::{name}|\$\{{CUDA_{name}_LIBRARY\}})(?!\w)"),
        cmake_plain=re.compile(rf"(?<![\w:.$/{{-]){name}(?![\w.:])"),
        host_call=re.compile(rf"(?<!\w){lost.host_calls}\w*\s*\("),
    )


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    for lost in breakages.unbundled:
        why = f"torch {breakages.version} neither brings nor loads the host library of {lost.shown}"
        remedy = f"depend on {lost.package}, and load it or put its folder on the library's run path"
        lines = Lines(source.build)
        for offset in _find_flags(source, _patterns(lost)):
            yield Hit(lines.place(offset), why, remedy)
        if source.module is not None:
            for place in _find_linked(source.module, lost):
                yield Hit(place, why, remedy)


def _find_flags(source: Source, patterns: _Patterns) -> Iterator[int]:
    if source.kind is FileKind.CODE:
        if first := patterns.host_call.search(source.build):
            yield first.start()
        return
    yield from (match.start() for match in patterns.flag.finditer(source.build))
    if source.kind is FileKind.CMAKE:
        for call in _CMAKE_CALL.finditer(source.build):
            links = call[1].endswith("link_libraries")
            for pattern in (patterns.cmake_library, *((patterns.cmake_plain,) if links else ())):
                for match in pattern.finditer(call[2]):
                    yield call.start(2) + match.start()


def _find_linked(module: Module, lost: Unbundled) -> Iterator[TextPlace]:
    for text in module.texts:
        if not text.is_docstring and _patterns(lost).option.search(text.value):
            yield text.place
    for call, scope in module.calls("setuptools.Extension"):
        libraries = argument(call, "libraries")
        for origin in module.origins(libraries, scope) if libraries else ():
            for node in ast.walk(origin):
                if isinstance(node, ast.Constant) and node.value == lost.library:
                    yield place_of(node)


RULE = Rule(
    name="curand-build",
    title="A build that links against cuRAND",
    severity=Severity.WARNING,
    kinds=CODE | SCRIPTS | {FileKind.CMAKE, FileKind.CODE},
    needles=lambda breakages: tuple((lost.library.encode(),) for lost in breakages.unbundled),
    find=find,
)
