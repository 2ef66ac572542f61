"""Index addresses of backends that the release is not published for."""

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
        family = install.family(breakages.family)
        # A pin below the release is at home on an old index; one above the index is another rule's.
        if any(not breakages.is_admitted_by(requirement.specifier) for requirement in family):
            continue
        if any(
            requirement.name == "torch" and breakages.is_pinned_by(requirement.specifier)
            for requirement in family
        ):
            continue
        for index in install.indexes:
            if breakages.is_published(index.backend):
                continue
            effect = (
                f"torch {breakages.version} ({breakages.default_backend}) of the default index is"
                " taken instead"
                if index.extra
                else "torch stays at that release for good"
            )
            yield Hit(
                index.place,
                f"torch {breakages.version} is not published for {index.backend}"
                f" ({breakages.last_on(index.backend)}): {effect}",
                f"take {breakages.default_backend}, or pin torch=={breakages.before} beside this"
                f" index if the machine needs {index.backend}",
            )


RULE = Rule(
    name="removed-index",
    title="The index of a backend that the release dropped",
    severity=Severity.WARNING,
    kinds=INSTALLING,
    needles=INDEX_NEEDLES,
    find=find,
    is_of_release=True,
)
