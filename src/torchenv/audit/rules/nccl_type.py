"""Code that asks whether a process group is of the old NCCL class."""

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
    from torchenv.audit.modules import Module
    from torchenv.audit.scopes import Scope


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module, nccl = source.module, breakages.nccl
    if module is None or nccl is None:
        return
    legacy = nccl.legacy_class.rpartition(".")[2]
    for node, classes, scope in _type_tests(module):
        asked = {path for named in classes for path in module.resolve(named, scope)}
        if nccl.legacy_class in asked and nccl.new_classes.isdisjoint(asked):
            yield Hit(
                place_of(node),
                f'a "nccl" group of torch {breakages.version} is not a {legacy}: this becomes false',
                "ask for the name of the backend: torch.distributed.get_backend(group)",
            )


def _type_tests(module: Module) -> Iterator[tuple[ast.expr, list[ast.expr], Scope]]:
    """Yield the questions for a class, with the classes that they ask for."""
    for call, scope in module.calls("builtins.isinstance", "builtins.issubclass"):
        if len(call.args) >= 2:
            named = call.args[1]
            yield call, named.elts if isinstance(named, ast.Tuple) else [named], scope
    for node in ast.walk(module.tree):
        match node:
            # type(backend) is ProcessGroupNCCL    type(backend) == ProcessGroupNCCL
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="type")),
                ops=[ast.Is() | ast.Eq() | ast.IsNot() | ast.NotEq()],
                comparators=[named],
            ):
                yield node, [named], module.scope
            # case dist.ProcessGroupNCCL():
            case ast.MatchClass(cls=named):
                yield named, [named], module.scope
            case _:
                pass


RULE = Rule(
    name="nccl-type",
    title="A test for the class of the old NCCL backend",
    severity=Severity.ERROR,
    kinds=CODE,
    needles=lambda breakages: (
        ((breakages.nccl.legacy_class.rpartition(".")[2].encode(),),) if breakages.nccl else ()
    ),
    find=find,
)
