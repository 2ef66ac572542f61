"""Builds that link against the host library of cuRAND."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from torchenv.audit.commands import Lines
from torchenv.audit.findings import Place, Severity
from torchenv.audit.modules import Module, argument
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import CODE, SCRIPTS, Kind, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages

# -lcurand    CUDA::curand    caffe2::curand    ${CUDA_curand_LIBRARY}    find_library('curand')
_BUILD = re.compile(
    r"(?<![\w-])-lcurand(?!\w)|(?:CUDA|caffe2)::curand(?!\w)|CUDA_curand_LIBRARY"
    r"|find_library\(\s*['\"]curand['\"]"
)
# target_link_libraries(mine PRIVATE cublas curand)
_LINKS = re.compile(r"target_link_libraries\s*\(([^)]*)\)")
# The device-only curand_kernel.h needs no library.
_INCLUDE = re.compile(r"^[ \t]*#\s*include\s*[<\"]((?:[^>\"\n]*/)?curand\.h)[>\"]", re.MULTILINE)


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    why = f"torch {breakages.version} neither brings nor loads the host library of cuRAND"
    remedy = "depend on nvidia-curand, and load it or put its folder on the library's run path"
    lines = Lines(source.build)
    for offset in _written(source):
        yield Hit(lines.place(offset), why, remedy)
    if source.module is not None:
        for place in _linked(source.module):
            yield Hit(place, why, remedy)


def _written(source: Source) -> Iterator[int]:
    if source.kind is Kind.CODE:
        yield from (match.start(1) for match in _INCLUDE.finditer(source.build))
        return
    yield from (match.start() for match in _BUILD.finditer(source.build))
    for match in _LINKS.finditer(source.build):
        for word in re.finditer(r"(?<![\w:.-])curand(?![\w.])", match[1]):
            yield match.start(1) + word.start()


def _linked(module: Module) -> Iterator[Place]:
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
    kinds=CODE | SCRIPTS | {Kind.CMAKE, Kind.CODE},
    needles=((b"curand",),),
    find=find,
)
