"""Local version labels of backends that the release is not published for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import INSTALLING, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchenv.audit.breakages import Breakages
    from torchenv.audit.installs import NamedRequirement


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    for install in source.installs:
        family = install.family(breakages.family)
        for requirement in family:
            label = requirement.label
            if label is None or label not in breakages.left or breakages.is_published(label):
                continue
            if _goes_with_release(requirement, family, breakages):
                yield Hit(
                    requirement.place,
                    f"`{requirement}` is built for {label}, for which torch {breakages.version} is"
                    f" not published ({breakages.last_on(label)})",
                    f"take the label +{breakages.default_backend}, or torch=={breakages.before}+{label}",
                )


def _goes_with_release(
    requirement: NamedRequirement, family: Sequence[NamedRequirement], breakages: Breakages
) -> bool:
    if requirement.name == "torch":
        return breakages.is_pinned_by(requirement.specifier)
    return any(beside.name == "torch" and breakages.is_admitted_by(beside.specifier) for beside in family)


RULE = Rule(
    name="removed-label",
    title="A local version label of a backend that the release dropped",
    severity=Severity.ERROR,
    kinds=INSTALLING,
    needles=((b"torch", b"+cu"), (b"torch", b"+rocm"), (b"torch-", b"%2B")),
    find=find,
    is_of_release=True,
)
