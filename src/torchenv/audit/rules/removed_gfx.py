"""Settings that make ROCm run code for AMD chips that the release has no code for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.rule import Hit, Rule, only_where
from torchenv.audit.sources import CODE, SCRIPTS, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    stay = f" with {breakages.removed_gfx_backend}" if breakages.removed_gfx_backend else ""
    for setting in source.settings:
        gfx = breakages.removed_gfx.get(setting.value or "")
        if gfx and setting.name == "HSA_OVERRIDE_GFX_VERSION":
            yield Hit(
                setting.place,
                f"it presents the card as {gfx}, for which torch {breakages.version} has no kernels",
                f"remove the setting, or stay on torch {breakages.before}{stay} for {gfx}",
            )


RULE = Rule(
    name="removed-gfx",
    title="An override to an AMD chip that the release dropped",
    severity=Severity.ERROR,
    kinds=CODE | SCRIPTS,
    needles=only_where(lambda breakages: breakages.removed_gfx, (b"HSA_OVERRIDE_GFX_VERSION",)),
    find=find,
    is_of_release=True,
)
