"""Local version labels of backends that the release is not published for."""

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
        family = install.family(breakages.family)
        torch = [each for each in family if each.name == "torch"]
        for each in family:
            if each.label is None or breakages.is_published(each.label):
                continue
            if each.label not in breakages.left:
                continue
            if each.name == "torch":
                beside = [each] if breakages.is_pinned_by(each.specifier) else []
            else:
                beside = [t for t in torch if breakages.is_admitted_by(t.specifier)]
            if beside:
                yield Hit(
                    each.place,
                    f"`{each}` is built for {each.label}, for which torch {breakages.version} is"
                    f" not published ({breakages.last_on(each.label)})",
                    f"take the label +{breakages.default_backend}, or torch=={breakages.before}+{each.label}",
                )


RULE = Rule(
    name="removed-label",
    title="A local version label of a backend that the release left",
    severity=Severity.ERROR,
    kinds=INSTALLING,
    needles=((b"torch", b"+cu"), (b"torch", b"+rocm")),
    find=find,
    is_of_release=True,
)
