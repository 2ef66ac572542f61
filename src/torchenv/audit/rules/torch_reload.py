"""Code that imports torch a second time in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.modules import argument
from torchenv.audit.rule import Hit, Rule, only_where
from torchenv.audit.sources import CODE, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module = source.module
    if module is None:
        return
    for call, scope in module.calls("importlib.reload", "imp.reload"):
        given = argument(call, "module", 0)
        if given is not None and "torch" in module.resolve(given, scope):
            yield Hit(
                place_of(call),
                f"torch {breakages.version} raises ImportError: it can be initialised only once in a process",
                "start a new process in its place",
            )


RULE = Rule(
    name="torch-reload",
    title="torch is imported again in the same process",
    severity=Severity.ERROR,
    kinds=CODE,
    needles=only_where(lambda breakages: breakages.loads_once, (b"torch", b"reload", b"imp")),
    find=find,
)
