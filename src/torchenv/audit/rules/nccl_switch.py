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
                f"torch {breakages.before} took 1 to opt in, as {breakages.version} does by itself",
                "remove the setting once every machine has the new release",
                Severity.NOTE,
            )
        else:
            yield Hit(
                setting.place,
                "it brings the old NCCL backend back, which is said to go with the next release",
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
