"""The rules of the audit: every module of this package holds one, as `RULE`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchenv.audit.rule import Rule

RULES: tuple[Rule, ...] = tuple(
    import_module(f"{__name__}.{module.name}").RULE
    for module in sorted(iter_modules(__path__), key=lambda module: module.name)
)
