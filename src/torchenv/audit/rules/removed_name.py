"""Names that the release removed from torch's modules and objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.backends import is_backend
from torchenv.audit.findings import Severity, TextPlace
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import CODE, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module = source.module
    if module is None:
        return
    # `hasattr(backend, "supports_time_estimate")` asks, and is right on both releases.
    asked = {text.value for text in module.texts}
    for name, instead in breakages.removed_names.items():
        for use in module.uses(*module.spell([name])):
            if not use.guarded and name.rpartition(".")[2] not in asked:
                yield _hit(use.place, f"`{name}`", instead, breakages)
    for node, scope in module.members:
        advice = breakages.removed_members.get(node.attr)
        if advice and node.attr not in asked and is_backend(module, node.value, scope):
            yield _hit(place_of(node), f"`{node.attr}` of a backend", advice, breakages)


def _hit(place: TextPlace, what: str, instead: str, breakages: Breakages) -> Hit:
    return Hit(place, f"{what} is gone in torch {breakages.version}", instead)


RULE = Rule(
    name="removed-name",
    title="A name that the release removed",
    severity=Severity.ERROR,
    kinds=CODE,
    needles=lambda breakages: tuple(
        (name.rpartition(".")[2].encode(),) for name in (*breakages.removed_names, *breakages.removed_members)
    ),
    find=find,
)
