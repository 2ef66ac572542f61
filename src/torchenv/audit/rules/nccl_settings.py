"""Environment variables made for the old NCCL backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import CODE, SCRIPTS, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    nccl = breakages.nccl
    if nccl is None:
        return
    for setting in source.settings:
        if setting.name.startswith(nccl.settings):
            yield Hit(
                setting.place,
                f"{setting.name} is a setting of the NCCL backend that torch {breakages.version}"
                " replaced; whether the new one reads it is not documented",
                "check in a short run that it still has an effect",
            )


RULE = Rule(
    name="nccl-settings",
    title="A setting of the old NCCL backend",
    severity=Severity.NOTE,
    kinds=CODE | SCRIPTS,
    needles=lambda breakages: ((breakages.nccl.settings.encode(),),) if breakages.nccl else (),
    find=find,
)
