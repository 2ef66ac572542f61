"""An allow-list for jagged nested tensors that lacks one of the names that old files need."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import CODE, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module = source.module
    nested = breakages.nested
    if module is None or nested is None:
        return
    rebuild, *others = nested.safe_globals
    allowed: set[str] = set()
    first = None
    for call, scope in module.calls(
        "torch.serialization.add_safe_globals", "torch.serialization.safe_globals"
    ):
        for node in ast.walk(call):
            if isinstance(node, ast.Name | ast.Attribute):
                allowed.update(module.resolve(node, scope))
        if first is None and rebuild in allowed:
            first = call
    missing = [other for other in others if other not in allowed]
    if first is not None and missing:
        yield Hit(
            place_of(first),
            f"a jagged nested tensor written by torch {breakages.before} or older needs"
            f" {len(others) + 1} names allowed, and {', '.join(missing)} is not",
            f"add {', '.join(missing)}",
        )


RULE = Rule(
    name="nested-globals",
    title="An allow-list that is too short for old nested tensors",
    severity=Severity.WARNING,
    kinds=CODE,
    needles=lambda breakages: (
        ((b"safe_globals", breakages.nested.safe_globals[0].rpartition(".")[2].encode()),)
        if breakages.nested
        else ()
    ),
    find=find,
)
