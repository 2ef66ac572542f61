"""Jagged nested tensors written to a file that older releases cannot read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.backends import find_nested_makers
from torchenv.audit.findings import Severity
from torchenv.audit.modules import Module, argument
from torchenv.audit.rule import Hit, Rule, only_where
from torchenv.audit.sources import CODE, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages
    from torchenv.audit.scopes import Scope


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module = source.module
    if module is None:
        return
    jagged = {
        id(call) for call, scope in find_nested_makers(module, breakages) if _is_jagged(module, call, scope)
    }
    for call, scope in module.calls("torch.save"):
        saved = argument(call, "obj", 0)
        if saved is not None and any(
            id(origin) in jagged for origin in module.origins(saved, scope, members=True)
        ):
            yield Hit(
                place_of(call),
                f"a jagged nested tensor written by torch {breakages.version} cannot be read by"
                f" {breakages.before} and older, even with weights_only=False",
                "save its values() and offsets() instead while the older release is in use",
            )


def _is_jagged(module: Module, call: ast.Call, scope: Scope) -> bool:
    if "torch.nested.nested_tensor_from_jagged" in module.resolve(call.func, scope):
        return True
    layout = argument(call, "layout")
    return layout is not None and "torch.jagged" in module.resolve(layout, scope)


RULE = Rule(
    name="nested-save",
    title="Jagged nested tensors that older releases cannot read",
    severity=Severity.WARNING,
    kinds=CODE,
    needles=only_where(lambda breakages: breakages.nested, (b"nested_tensor", b"save")),
    find=find,
)
