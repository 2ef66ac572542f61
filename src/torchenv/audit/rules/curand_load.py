"""Code that loads a library which the release no longer brings, such as cuRAND, by its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import CODE, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages

_LOADERS = ("ctypes.CDLL", "ctypes.cdll.LoadLibrary", "ctypes.PyDLL")


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module = source.module
    if module is None:
        return
    for call, scope in module.calls(*_LOADERS):
        names = module.values(call.args[0], scope) if call.args else set()
        for lost in breakages.unbundled:
            soname = re.compile(rf"lib{re.escape(lost.library)}\.so(\.|$)")
            if any(isinstance(name, str) and soname.match(name) for name in names):
                yield Hit(
                    place_of(call),
                    f"torch {breakages.version} neither brings nor loads {lost.shown}: this raises OSError"
                    " where the system has none of its own",
                    f"depend on {lost.package}, and load the library from its folder",
                )


RULE = Rule(
    name="curand-load",
    title="cuRAND is loaded by its name",
    severity=Severity.WARNING,
    kinds=CODE,
    needles=lambda breakages: tuple((f"lib{lost.library}".encode(),) for lost in breakages.unbundled),
    find=find,
)
