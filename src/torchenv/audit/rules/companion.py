"""Companion packages whose pinned release does not import beside this torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import INSTALLING, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    for install in source.installs:
        torch = [requirement for requirement in install.asked if requirement.name == "torch"]
        for companion in breakages.companions:
            for requirement in install.asked:
                pins = [v for v in requirement.specifier if v.operator in {"==", "==="}]
                if requirement.name != companion.name or requirement.label is not None:
                    continue
                beside = [other for other in torch if other.meets(requirement)]
                if not beside or not all(breakages.is_admitted_by(other.specifier) for other in beside):
                    continue
                certain = any(breakages.is_pinned_by(other.specifier) for other in beside)
                if any(companion.refuses.contains(v.version.removesuffix(".*")) for v in pins):
                    yield Hit(
                        requirement.place,
                        f"`{requirement}` beside `{beside[0]}` {companion.why}",
                        f"take {companion.name}=={companion.instead}",
                        Severity.ERROR if certain else Severity.WARNING,
                    )


RULE = Rule(
    name="companion",
    title="A companion package that does not import beside the release",
    severity=Severity.ERROR,
    kinds=INSTALLING,
    needles=lambda breakages: tuple((companion.name.encode(),) for companion in breakages.companions),
    find=find,
    is_of_release=True,
)
