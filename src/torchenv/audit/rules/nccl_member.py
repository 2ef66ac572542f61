"""Members that only an object of the old NCCL backend has."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchenv.audit.backends import is_backend
from torchenv.audit.findings import Severity
from torchenv.audit.rule import Hit, Rule, only_where
from torchenv.audit.sources import CODE, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module, nccl = source.module, breakages.nccl
    if module is None or nccl is None:
        return
    # A test for the class or the member says it already, and is another rule's.
    asked = {text.value for text in module.texts}
    typed = {ast.unparse(call.args[0]) for call, _ in module.calls("builtins.isinstance")}
    for node, scope in module.members:
        is_legacy = node.attr in nccl.legacy_members - asked
        if not is_legacy or ast.unparse(node.value) in typed:
            continue
        if is_backend(module, node.value, scope):
            yield Hit(
                place_of(node),
                f'the "nccl" backend of torch {breakages.version} has no `{node.attr}`',
                f'ask with hasattr first, or name "{nccl.legacy}" for this release',
            )


RULE = Rule(
    name="nccl-member",
    title="A member that only the old NCCL backend has",
    severity=Severity.ERROR,
    kinds=CODE,
    needles=only_where(lambda breakages: breakages.nccl, (b"_get_backend",)),
    find=find,
)
