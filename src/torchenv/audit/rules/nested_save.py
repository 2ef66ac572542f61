"""Jagged nested tensors written to a file that older releases cannot read."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchenv.audit.backends import nested_makers
from torchenv.audit.findings import Severity
from torchenv.audit.modules import Module, argument
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import CODE, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages
    from torchenv.audit.scopes import Scope


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module = source.module
    if module is None:
        return
    jagged = {
        id(call)
        for call, scope in nested_makers(module, breakages)
        if _is_jagged(module, call, scope)
    }
    for call, scope in module.calls("torch.save"):
        saved = argument(call, "obj", 0)
        if saved is not None and any(id(each) in jagged for each in _inside(module, saved, scope)):
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


def _inside(module: Module, node: ast.expr, scope: Scope) -> Iterator[ast.AST]:
    """Give what an expression holds itself: a name's values, members of a literal."""
    for origin in module.origins(node, scope):
        yield origin
        match origin:
            case ast.Dict(values=members) | ast.List(elts=members) | ast.Tuple(elts=members):
                for each in members:
                    yield from _inside(module, each, scope)
            case _:
                pass


RULE = Rule(
    name="nested-save",
    title="Jagged nested tensors that older releases cannot read",
    severity=Severity.WARNING,
    kinds=CODE,
    needles=((b"nested_tensor", b"save"),),
    find=find,
)
