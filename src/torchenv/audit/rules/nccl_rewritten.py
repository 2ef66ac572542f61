"""Process groups that get the rewritten NCCL backend without asking for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.backends import nccl_calls
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
    for call, _ in nccl_calls(module):
        yield Hit(
            place_of(call),
            f'"nccl" is another implementation in torch {breakages.version}, with eager'
            " communicators bound to one device",
            f"prove it with a short run; {nccl.switch}=0 or"
            f' "{nccl.legacy}" bring the old one back for this release only',
        )


RULE = Rule(
    name="nccl-rewritten",
    title="The default NCCL backend was rewritten",
    severity=Severity.NOTE,
    kinds=CODE,
    needles=only_where(lambda breakages: breakages.nccl, (b"init_process_group",), (b"new_group", b"nccl")),
    find=find,
)
