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


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module, nccl = source.module, breakages.nccl
    if module is None or nccl is None:
        return
    legacy = nccl.legacy_class.rpartition(".")[2]
    for call, scope in module.calls("builtins.isinstance", "builtins.issubclass"):
        if len(call.args) < 2:
            continue
        named = call.args[1]
        classes = named.elts if isinstance(named, ast.Tuple) else [named]
        asked = {path for cls in classes for path in module.resolve(cls, scope)}
        if nccl.legacy_class in asked and nccl.new_classes.isdisjoint(asked):
            yield Hit(
                place_of(call),
                f'a "nccl" group of torch {breakages.version} is no {legacy}: this becomes false',
                "ask for the name of the backend: torch.distributed.get_backend(group)",
            )


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
