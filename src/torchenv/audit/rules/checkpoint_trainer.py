"""Trainers told to write distributed checkpoints."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.modules import UNKNOWN, Module, argument, is_open
from torchenv.audit.rule import Hit, Needles, Rule
from torchenv.audit.sources import CODE, SCRIPTS, FileKind, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages, Trainer, TrainerSetting
    from torchenv.audit.findings import TextPlace
    from torchenv.audit.scopes import Scope


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    why = (
        "writes distributed checkpoints, whose metadata"
        f" {breakages.before} and older cannot read once torch {breakages.version} wrote it"
    )
    remedy = "start a new line of checkpoints with the new release, and keep the last one of the old"
    for setting in breakages.trainer_settings:
        for place in _places(source, setting):
            yield Hit(place, f"{setting.tool} {why}", remedy)
    module = source.module
    if module is None:
        return
    for trainer in breakages.trainers:
        for call, scope in module.calls(trainer.call):
            if _shards(module, call, scope, trainer):
                yield Hit(place_of(call), f"{trainer.call} {why}", remedy)


def _places(source: Source, setting: TrainerSetting) -> Iterator[TextPlace]:
    # fsdp_config: {fsdp_state_dict_type: SHARDED_STATE_DICT} of a configuration
    for scalar in source.scalars:
        if scalar.keys[-1:] == (setting.key,) and scalar.text in setting.values:
            yield scalar.place
    # accelerate launch --fsdp_state_dict_type SHARDED_STATE_DICT    FSDP_STATE_DICT_TYPE=SHARDED_STATE_DICT
    for given in source.settings:
        if given.name in {f"--{setting.key}", setting.variable} and given.value in setting.values:
            yield given.place
    module = source.module
    if module is None:
        return
    # plugin.set_state_dict_type("SHARDED_STATE_DICT")
    for call, scope in module.member_calls(setting.method) if setting.method else ():
        if call.args and not module.values(call.args[0], scope).isdisjoint(setting.values):
            yield place_of(call)
    # TrainingArguments(fsdp_config={"state_dict_type": "SHARDED_STATE_DICT"})
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if (
                    isinstance(key, ast.Constant)
                    and key.value == setting.key
                    and isinstance(value, ast.Constant)
                    and value.value in setting.values
                ):
                    yield place_of(key)


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
    # The name of a class; of a function such as `dist_checkpointing.save` the module, which says more.
    parts = (trainer.call.split(".") for trainer in breakages.trainers)
    words = {part[-1] if part[-1][0].isupper() else part[-2] for part in parts}
    settings = breakages.trainer_settings
    words |= {setting.key for setting in settings} | {
        setting.variable for setting in settings if setting.variable
    }
    words |= {setting.method for setting in settings if setting.method}
    return tuple((word.encode(),) for word in sorted(words))


RULE = Rule(
    name="checkpoint-trainer",
    title="A trainer that writes distributed checkpoints",
    severity=Severity.WARNING,
    kinds=CODE | SCRIPTS | {FileKind.PROSE},
    needles=_needles,
    find=find,
)
