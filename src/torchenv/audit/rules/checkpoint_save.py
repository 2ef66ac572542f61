"""Distributed checkpoints whose metadata older releases cannot read."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.modules import Module, argument
from torchenv.audit.rule import Hit, Rule, only_where
from torchenv.audit.sources import CODE, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages
    from torchenv.audit.scopes import Scope

_PACKAGE = "torch.distributed.checkpoint"


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module = source.module
    facts = breakages.checkpoint
    if module is None or facts is None:
        return
    saves = module.calls(*(f"{_PACKAGE}.{name}" for name in facts.savers))
    # A save says it once; its writer and planner are told only where the save is elsewhere.
    calls = saves or module.calls(*(f"{_PACKAGE}.{name}" for name in facts.writers))
    for call, scope in calls:
        if not _writes_no_metadata(module, call, scope, facts.harmless_writers):
            yield Hit(
                place_of(call),
                f"the metadata of a distributed checkpoint written by torch {breakages.version}"
                f" cannot be read by {breakages.before} and older",
                "start a new line of checkpoints, and keep the last one of the old release; see"
                " `torchenv help checkpoints downgrade` for the way back",
            )


def _writes_no_metadata(module: Module, call: ast.Call, scope: Scope, harmless: tuple[str, ...]) -> bool:
    writer = argument(call, "storage_writer")
    if writer is None:
        return False
    # Where it may be None too, the writer that torch takes then writes the metadata.
    names = {f"{_PACKAGE}.{name}" for name in harmless}
    return all(
        isinstance(origin, ast.Call) and not names.isdisjoint(module.resolve(origin.func, scope))
        for origin in module.origins(writer, scope)
    )


def _imports(package: str, name: str) -> re.Pattern[bytes]:
    names = rf"(?:\([^)]*?|[^\n(]*?)\b{name}\b"
    return re.compile(rf"from\s+{re.escape(package)}\s+import\s*{names}".encode())


RULE = Rule(
    name="checkpoint-save",
    title="Distributed checkpoints that older releases cannot read",
    severity=Severity.WARNING,
    kinds=CODE,
    # "distributed" alone stands in every licence, and "checkpoint" in every docstring.
    needles=only_where(
        lambda breakages: breakages.checkpoint,
        (b"distributed.checkpoint",),
        (b"torch.distributed as", b".checkpoint."),
        (b"torch.distributed import", b"checkpoint", _imports("torch.distributed", "checkpoint")),
        (b"torch import", b"checkpoint", _imports("torch", "distributed")),
    ),
    find=find,
)
