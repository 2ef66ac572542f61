"""Process groups that do not say which device they belong to."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchenv.audit.backends import nccl_calls
from torchenv.audit.findings import Severity
from torchenv.audit.modules import Module, argument, is_open
from torchenv.audit.rule import Hit, Rule, only_where
from torchenv.audit.sources import CODE, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages
    from torchenv.audit.scopes import Scope

_SET_DEVICE = (
    "torch.cuda.set_device",
    "torch.accelerator.set_device_index",
    "torch.accelerator.set_device_idx",
)


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module = source.module
    if module is None:
        return
    chosen = [(call.args[0], scope) for call, scope in module.calls(*_SET_DEVICE) if call.args]
    matches = all(module.says(device, scope, "LOCAL_RANK", "local_rank") for device, scope in chosen)
    mismatch = any(_is_fixed(module, device, scope) for device, scope in chosen)
    if matches and (chosen or _names_local_rank(module)):
        return
    for call, function in nccl_calls(module):
        if function != "init_process_group" or argument(call, "device_id", 8) or is_open(call):
            continue
        yield Hit(
            place_of(call),
            f"without device_id torch {breakages.version} binds the group to LOCAL_RANK, else the"
            " global rank, modulo the devices; it does not look at torch.cuda.set_device",
            'pass device_id=torch.device("cuda", local_rank)',
            # A device made of a rank is the one that is bound; only a fixed or computed one may be another.
            Severity.WARNING if mismatch else Severity.NOTE,
        )


def _is_fixed(module: Module, device: ast.expr, scope: Scope) -> bool:
    """Return whether a device is a number of its own, or computed otherwise than by `rank % count`."""
    for origin in module.origins(device, scope):
        match origin:
            case ast.Constant(value=int()):
                return True
            case ast.Constant(value=str(text)) if ":" in text:
                return True
            case ast.BinOp(op=op) if not isinstance(op, ast.Mod):
                return True
            case _:
                pass
    return False


def _names_local_rank(module: Module) -> bool:
    return "local_rank" in module.names or any(text.value == "LOCAL_RANK" for text in module.texts)


RULE = Rule(
    name="one-device",
    title="A process group without its device",
    severity=Severity.WARNING,
    kinds=CODE,
    needles=only_where(lambda breakages: breakages.one_device, (b"init_process_group",)),
    find=find,
)
