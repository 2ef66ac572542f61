"""The environment variable that chooses between the two NCCL backends."""

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
        if setting.name != nccl.switch:
            continue
        if setting.value == "1":
            yield Hit(
                setting.place,
                f"torch {breakages.before} needed 1 to opt in; {breakages.version} does so by default",
                "remove the setting once every machine has the new release",
                Severity.NOTE,
            )
        else:
            yield Hit(
                setting.place,
                "it brings the old NCCL backend back, which is to be removed in the next release",
                "remove the setting once the new backend is proven",
            )


RULE = Rule(
    name="nccl-switch",
    title="The switch between the two NCCL backends",
    severity=Severity.WARNING,
    kinds=CODE | SCRIPTS,
    needles=lambda breakages: ((breakages.nccl.switch.encode(),),) if breakages.nccl else (),
    find=find,
)
