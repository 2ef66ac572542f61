"""Uses of Apple's GPU on a macOS that the release no longer drives it on."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.modules import Module, argument
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import CODE, FileKind, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    why = f"torch {breakages.version} uses Apple's GPU from macOS {breakages.mps_macos} on"
    for scalar in source.scalars:
        # runs-on: macos-14    os: [ubuntu-24.04, macos-14-xlarge]
        match = re.fullmatch(r"macos-(\d+)(?:-\w+)*", scalar.text)
        if match and int(match[1]) < breakages.mps_macos:
            yield Hit(
                scalar.place,
                f"{why}: on macOS {match[1]} torch.backends.mps.is_available() is false",
                f"use a runner with macOS {breakages.mps_macos} or newer, or torch {breakages.before}",
                Severity.WARNING,
            )
    module = source.module
    # Code that asks whether the device is there needs no advice.
    if module is None or any("available" in name for name in module.names):
        return
    for call in _on_mps(module):
        yield Hit(
            place_of(call),
            f"{why}, and nothing here checks that it is available",
            "check torch.backends.mps.is_available() first, or make sure that the machines are new enough",
        )


def _on_mps(module: Module) -> Iterator[ast.Call]:
    # A device that is compared with is asked about, and not used.
    asked = {
        id(part)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Compare)
        for part in (node.left, *node.comparators)
    }
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call) or id(node) in asked:
            continue
        named = argument(node, "device")
        first = node.args[0] if node.args else None
        paths = module.resolve(node.func, module.scope)
        # tensor.to("mps")    torch.device("mps")    torch.zeros(2, device="mps")
        moves = isinstance(node.func, ast.Attribute) and node.func.attr == "to"
        is_torch = any(path.startswith("torch.") for path in paths)
        if (_is_mps(first) and (moves or "torch.device" in paths)) or (
            _is_mps(named) and (moves or is_torch)
        ):
            yield node


def _is_mps(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value in {"mps", "mps:0"}


RULE = Rule(
    name="mps-floor",
    title="Apple's GPU on a macOS that the release dropped",
    severity=Severity.NOTE,
    kinds=CODE | {FileKind.CI},
    needles=((b"torch", b'"mps'), (b"torch", b"'mps"), (b"macos-",)),
    find=find,
    is_of_release=True,
)
