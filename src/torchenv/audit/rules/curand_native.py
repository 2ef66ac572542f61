"""Compiled libraries that need the host library of cuRAND at load time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity, TextPlace
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import FileKind, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    native = source.native
    if native is None:
        return
    lost = f"torch {breakages.version} neither brings nor loads cuRAND"
    # A wheel that carries its own copy names it by a hash: libcurand-5ac0a2fd.so.10.
    needed = [name for name in native.needed if re.match(r"libcurand\.so(\.|$)", name)]
    if needed and native.search:
        yield Hit(
            TextPlace(1),
            f"it needs {needed[0]}, and {lost}; it looks in {':'.join(native.search)}",
            "install nvidia-curand where this library looks",
            Severity.WARNING,
        )
    elif needed:
        yield Hit(
            TextPlace(1),
            f"it needs {needed[0]} and does not say where it is; {lost}",
            "install nvidia-curand and set the library's run path, or load it before this library",
        )
    elif native.undefined and not any("curand" in name for name in native.needed):
        yield Hit(
            TextPlace(1),
            f"it leaves {native.undefined[0]} to whoever loaded cuRAND before it; {lost}",
            "install nvidia-curand and link against it, or load it before this library",
        )


RULE = Rule(
    name="curand-native",
    title="A compiled library that needs cuRAND",
    severity=Severity.ERROR,
    kinds=frozenset({FileKind.NATIVE}),
    needles=(),
    find=find,
)
