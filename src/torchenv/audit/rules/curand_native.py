"""Compiled libraries that need, at load time, a library which the release no longer brings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity, TextPlace
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import FileKind, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages, Unbundled
    from torchenv.audit.native import Native


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    if source.native is not None:
        for lost in breakages.unbundled:
            yield from _hits(source.native, lost, breakages)


def _hits(native: Native, lost: Unbundled, breakages: Breakages) -> Iterator[Hit]:
    gone = f"torch {breakages.version} neither brings nor loads {lost.shown}"
    # A wheel that carries its own copy names it by a hash: libcurand-5ac0a2fd.so.10.
    soname = re.compile(rf"lib{re.escape(lost.library)}\.so(\.|$)")
    needed = [name for name in native.needed if soname.match(name)]
    undefined = [name for name in native.undefined if name.startswith(lost.library)]
    if needed and native.search:
        yield Hit(
            TextPlace(1),
            f"it needs {needed[0]}, and {gone}; it searches {':'.join(native.search)}",
            f"install {lost.package} where this library looks",
            Severity.WARNING,
        )
    elif needed:
        yield Hit(
            TextPlace(1),
            f"it needs {needed[0]} and names no place for it; {gone}",
            f"install {lost.package} and set the library's run path, or load it before this library",
        )
    elif undefined and not any(lost.library in name for name in native.needed):
        yield Hit(
            TextPlace(1),
            f"it leaves {undefined[0]} to whoever loaded {lost.shown} before it; {gone}",
            f"install {lost.package} and link against it, or load it before this library",
        )


RULE = Rule(
    name="curand-native",
    title="A compiled library that needs cuRAND",
    severity=Severity.ERROR,
    kinds=frozenset({FileKind.NATIVE}),
    needles=(),
    find=find,
)
