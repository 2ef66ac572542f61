"""Trainers told to write distributed checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.modules import UNKNOWN, Module, argument, is_open
from torchenv.audit.rule import Hit, Needles, Rule
from torchenv.audit.sources import CODE, CONFIGURATION, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages, Trainer
    from torchenv.audit.scopes import Scope


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    why = (
        "writes distributed checkpoints, whose metadata"
        f" {breakages.before} and older cannot read once torch {breakages.version} wrote it"
    )
    remedy = "start a new line of checkpoints with the new release, and keep the last one of the old"
    for scalar in source.scalars:
        # accelerate's configuration: fsdp_config: {fsdp_state_dict_type: SHARDED_STATE_DICT}
        if scalar.keys[-1:] == ("fsdp_state_dict_type",) and scalar.text == "SHARDED_STATE_DICT":
            yield Hit(scalar.place, f"accelerate {why}", remedy)
    module = source.module
    if module is None:
        return
    for trainer in breakages.trainers:
        for call, scope in module.calls(trainer.call):
            if _shards(module, call, scope, trainer):
                yield Hit(place_of(call), f"{trainer.call} {why}", remedy)


def _shards(module: Module, call: ast.Call, scope: Scope, trainer: Trainer) -> bool:
    if trainer.parameter is None:
        return True
    given = argument(call, trainer.parameter)
    if given is None:
        return trainer.default and not is_open(call)
    known = {str(item) for item in module.values(given, scope) if item is not UNKNOWN}
    known.update(module.resolve(given, scope))
    return not known.isdisjoint(trainer.values)


def _needles(breakages: Breakages) -> Needles:
    if not breakages.trainers:
        return ()
    # The name of a class; of a function such as `dist_checkpointing.save` the module, which says more.
    parts = (trainer.call.split(".") for trainer in breakages.trainers)
    words = {part[-1] if part[-1][0].isupper() else part[-2] for part in parts}
    return (*((word.encode(),) for word in sorted(words)), (b"fsdp_state_dict_type",))


RULE = Rule(
    name="checkpoint-trainer",
    title="A trainer that writes distributed checkpoints",
    severity=Severity.WARNING,
    kinds=CODE | CONFIGURATION,
    needles=_needles,
    find=find,
)
