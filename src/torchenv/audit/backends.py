"""Questions about process groups and nested tensors that several rules ask of a module."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchenv.audit.modules import Module, argument, is_open

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages
    from torchenv.audit.scopes import Scope


def nccl_calls(module: Module) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls that make a process group which may be of "nccl", with the function's name."""
    for name, position in (("init_process_group", 0), ("new_group", 2)):
        for call, scope in module.calls(f"torch.distributed.{name}"):
            given = argument(call, "backend", position)
            if given is None:
                # A new group is of the same backend as the first one, which was told already.
                if name == "init_process_group" and not is_open(call):
                    yield call, name
            elif any(_is_nccl(item) for item in module.values(given, scope)):
                yield call, name


def is_backend(module: Module, node: ast.expr, scope: Scope) -> bool:
    """Return whether an expression is what `group._get_backend(device)` gave."""
    return any(
        isinstance(origin, ast.Call)
        and isinstance(origin.func, ast.Attribute)
        and origin.func.attr == "_get_backend"
        for origin in module.origins(node, scope)
    )


def find_nested_makers(module: Module, breakages: Breakages) -> list[tuple[ast.Call, Scope]]:
    """Return the calls that make nested tensors."""
    return module.calls(*breakages.nested.makers) if breakages.nested else []


def _is_nccl(backend: object) -> bool:
    # nccl    NCCL    cpu:gloo,cuda:nccl    and None, which takes what each device has
    if backend is None:
        return True
    return isinstance(backend, str) and any(
        part.rpartition(":")[2] == "nccl" for part in backend.lower().split(",")
    )
