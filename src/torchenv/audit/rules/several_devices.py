"""One process that uses a process group from several devices."""

from __future__ import annotations

import ast
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

_NAMES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single",
    "broadcast", "reduce_scatter", "reduce_scatter_tensor", "isend", "irecv",
)  # fmt: skip
_COLLECTIVES = frozenset(f"torch.distributed.{name}" for name in _NAMES)


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    module = source.module
    if module is None:
        return
    why = f"in torch {breakages.version} a process group is bound to one device"
    remedy = "start one process for each device"
    for call, _ in module.calls("torch.nn.parallel.DistributedDataParallel"):
        devices = argument(call, "device_ids", 1)
        if isinstance(devices, ast.List | ast.Tuple) and len(devices.elts) > 1:
            yield Hit(place_of(call), f"{why}, and this model is given several", remedy)
    for loop, scope in module.loops:
        if isinstance(loop.target, ast.Name) and _visits_devices(module, loop, scope):
            for node in ast.walk(loop):
                if isinstance(node, ast.Call) and _is_collective(module, node, scope):
                    yield Hit(place_of(node), f"{why}, and this loop visits several", remedy)


def _is_collective(module: Module, call: ast.Call, scope: Scope) -> bool:
    return not _COLLECTIVES.isdisjoint(module.resolve(call.func, scope))


def _visits_devices(module: Module, loop: ast.For | ast.AsyncFor, scope: Scope) -> bool:
    assert isinstance(loop.target, ast.Name)
    name = loop.target.id
    return any(_is_device(module, node, name, scope) for node in ast.walk(loop))


def _is_device(module: Module, node: ast.AST, name: str, scope: Scope) -> bool:
    match node:
        case ast.JoinedStr(
            values=[ast.Constant(value="cuda:"), ast.FormattedValue(value=ast.Name(id=number))]
        ):
            return number == name
        case ast.Call(func=func, args=[ast.Constant(value="cuda"), ast.Name(id=number)]):
            return number == name and "torch.device" in module.resolve(func, scope)
        case ast.Call(func=func, args=[ast.Name(id=number)]):
            chooses = {"torch.cuda.device", "torch.cuda.set_device"}
            return number == name and not chooses.isdisjoint(module.resolve(func, scope))
        case _:
            return False


RULE = Rule(
    name="several-devices",
    title="One process group over several devices of a process",
    severity=Severity.ERROR,
    kinds=CODE,
    needles=only_where(
        lambda breakages: breakages.one_device,
        (b"device_ids", b"DistributedDataParallel"),
        *((b"distributed", b"cuda", b"for ", name.encode()) for name in _NAMES),
    ),
    find=find,
)
