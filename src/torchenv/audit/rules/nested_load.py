"""Files with nested tensors, loaded with the allow-list that no longer has them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchenv.audit.backends import find_nested_makers
from torchenv.audit.findings import Severity
from torchenv.audit.modules import argument, is_open
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import CODE, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages

_ALLOWING = ("torch.serialization.add_safe_globals", "torch.serialization.safe_globals")


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module, nested = source.module, breakages.nested
    if module is None or nested is None:
        return
    if not find_nested_makers(module, breakages) or module.uses(*_ALLOWING):
        return
    for call, _ in module.calls("torch.load"):
        weights_only = argument(call, "weights_only")
        is_off = isinstance(weights_only, ast.Constant) and weights_only.value is False
        if is_off or (weights_only is None and is_open(call)):
            continue
        yield Hit(
            place_of(call),
            "this code makes nested tensors, and torch.load refuses a file that holds any:"
            f" torch {breakages.version} took them off the weights_only allow-list",
            f"wrap the load in torch.serialization.safe_globals: {nested.strided_global} for strided"
            f" ones, {', '.join(nested.safe_globals)} for jagged ones",
        )


RULE = Rule(
    name="nested-load",
    title="Nested tensors under weights_only",
    severity=Severity.WARNING,
    kinds=CODE,
    needles=lambda breakages: (
        tuple((b"nested", maker.rpartition(".")[2].encode(), b"load") for maker in breakages.nested.makers)
        if breakages.nested
        else ()
    ),
    find=find,
)
