"""Builds that link against the host library of cuRAND."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from torchenv.audit.commands import Lines
from torchenv.audit.findings import Severity, TextPlace
from torchenv.audit.modules import Module, argument
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import CODE, SCRIPTS, FileKind, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages

# -lcurand    find_library('curand')
_FLAG = re.compile(r"(?<![\w-])-lcurand(?!\w)|find_library\(\s*['\"]curand['\"]")
# target_link_libraries(mine PRIVATE CUDA::cublas CUDA::curand)    list(APPEND LIBS caffe2::curand)
_CMAKE_CALL = re.compile(r"(?<!\w)(target_link_libraries|link_libraries|set|list)\s*\(([^)]*)\)")
_CMAKE_LIBRARY = re.compile(r"(?<![\w:])(?:(?:CUDA|caffe2)::curand|\$\{CUDA_curand_LIBRARY\})(?!\w)")
_CMAKE_PLAIN = re.compile(r"(?<![\w:.$/{-])curand(?![\w.:])")
# The functions of curand_kernel.h are for the device, and are written curand_init, curand_uniform.
_HOST_CALL = re.compile(r"(?<!\w)curand(?:Create|Destroy|Generate|Get|Set)\w*\s*\(")


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    why = f"torch {breakages.version} neither brings nor loads the host library of cuRAND"
    remedy = "depend on nvidia-curand, and load it or put its folder on the library's run path"
    lines = Lines(source.build)
    for offset in _find_flags(source):
        yield Hit(lines.place(offset), why, remedy)
    if source.module is not None:
        for place in _find_linked(source.module):
            yield Hit(place, why, remedy)


def _find_flags(source: Source) -> Iterator[int]:
    if source.kind is FileKind.CODE:
        if first := _HOST_CALL.search(source.build):
            yield first.start()
        return
    yield from (match.start() for match in _FLAG.finditer(source.build))
    if source.kind is FileKind.CMAKE:
        for call in _CMAKE_CALL.finditer(source.build):
            patterns = [_CMAKE_LIBRARY]
            patterns += [_CMAKE_PLAIN] if call[1].endswith("link_libraries") else []
            for pattern in patterns:
                for match in pattern.finditer(call[2]):
                    yield call.start(2) + match.start()


def _find_linked(module: Module) -> Iterator[TextPlace]:
    for text in module.texts:
        if not text.is_docstring and re.search(r"(?<![\w-])-lcurand(?!\w)", text.value):
            yield text.place
    for call, scope in module.calls("setuptools.Extension"):
        libraries = argument(call, "libraries")
        for origin in module.origins(libraries, scope) if libraries else ():
            for each in ast.walk(origin):
                if isinstance(each, ast.Constant) and each.value == "curand":
                    yield place_of(each)


RULE = Rule(
    name="curand-build",
    title="A build that links against cuRAND",
    severity=Severity.WARNING,
    kinds=CODE | SCRIPTS | {FileKind.CMAKE, FileKind.CODE},
    needles=((b"curand",),),
    find=find,
)
