"""Commands that ask for the release on an index without it, as torch itself advises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.installs import INDEX_NEEDLES
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import INSTALLING, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    for install in source.installs:
        pins = [
            requirement for requirement in install.family(breakages.family) if requirement.name == "torch"
        ]
        if not any(breakages.is_pinned_by(pin.specifier) for pin in pins):
            continue
        for index in install.indexes:
            if not breakages.is_published(index.backend):
                yield Hit(
                    index.place,
                    f"`{pins[0]}` does not exist for {index.backend}"
                    f" ({breakages.last_on(index.backend)}), though torch's own warning about an"
                    " unsupported GPU gives this advice",
                    f"for {index.backend} ask for torch=={breakages.before}; for {pins[0]} take"
                    f" {breakages.default_backend} on a machine that it serves",
                )


RULE = Rule(
    name="torch-advice",
    title="An install command for a wheel that does not exist",
    severity=Severity.ERROR,
    kinds=INSTALLING,
    needles=INDEX_NEEDLES,
    find=find,
    is_of_release=True,
)
