"""The old NCCL backend, asked for by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import CODE, CONFIGURATION, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    nccl = breakages.nccl
    if nccl is None:
        return
    legacy = nccl.legacy
    places = [scalar.place for scalar in source.scalars if _names(scalar.text, legacy)]
    if source.module is not None and source.module.mentions("torch"):
        places += [text.place for text in source.module.texts if _names(text.value, legacy)]
    for place in places:
        yield Hit(
            place,
            f'"{legacy}" exists in torch {breakages.before} and {breakages.version}, and is said'
            " to go with the next release",
            'keep it only as long as "nccl" is being proven',
        )


def _names(text: str, legacy: str) -> bool:
    # nccl-legacy    cpu:gloo,cuda:nccl-legacy
    return any(part.rpartition(":")[2] == legacy for part in text.split(","))


RULE = Rule(
    name="nccl-legacy",
    title="The old NCCL backend by name",
    severity=Severity.WARNING,
    kinds=CODE | CONFIGURATION,
    needles=lambda breakages: ((breakages.nccl.legacy.encode(),),) if breakages.nccl else (),
    find=find,
)
