"""Which names a piece of Python code binds, and what each of them may stand for."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(slots=True)
class Binding:
    """What one name of a scope may stand for: imported paths, assigned expressions."""

    paths: list[str] = field(default_factory=list)
    values: list[ast.expr] = field(default_factory=list)
    resolved: tuple[str, ...] | None = None


@dataclass(slots=True, eq=False)
class Scope:
    """The names of a module, function, class or comprehension, and the scope around it."""

    parent: Scope | None
    is_class: bool = False
    names: dict[str, Binding] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    outer: set[str] = field(default_factory=set)
    attributes: dict[str, tuple[Binding, Scope]] = field(default_factory=dict)

    def find_attribute(self, name: str) -> tuple[Binding, Scope] | None:
        """Return what a method's class assigns to `self.NAME`, with the scope that it is assigned in."""
        scope: Scope | None = self
        while scope is not None and not scope.is_class:
            scope = scope.parent
        return scope.attributes.get(name) if scope is not None else None

    def find(self, name: str) -> tuple[Binding, Scope] | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and (scope is self or not scope.is_class):
                return scope.names[name], scope
            scope = scope.parent
        return None

    def bind(self, name: str) -> Binding:
        if name in self.outer:
            return Binding()
        return self.names.setdefault(name, Binding())

    def all_stars(self) -> Iterator[str]:
        scope: Scope | None = self
        while scope is not None:
            yield from scope.stars
            scope = scope.parent


def bind_parameters(arguments: ast.arguments, scope: Scope) -> None:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    defaults += arguments.defaults
    pairs = [*zip(plain, defaults, strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    pairs += [(item, None) for item in (arguments.vararg, arguments.kwarg) if item]
    for parameter, default in pairs:
        _assign(parameter.arg, scope, default)


def bind_block(body: Iterable[ast.stmt], scope: Scope) -> None:
    """Bind what a block's statements bind, so that a name may be used before its line."""
    nodes = list(body)
    for node in nodes:
        if isinstance(node, ast.Global | ast.Nonlocal):
            scope.outer.update(node.names)
    for node in nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    root = alias.name.partition(".")[0]
                    path = alias.name if alias.asname else root
                    scope.bind(alias.asname or root).paths.append(path)
            case ast.ImportFrom(names=names):
                prefix = "." * node.level + (node.module or "")
                for alias in names:
                    if alias.name == "*":
                        scope.stars.append(prefix)
                    else:
                        path = f"{prefix}.{alias.name}"
                        scope.bind(alias.asname or alias.name).paths.append(path)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                scope.bind(name)
            case ast.ClassDef(name=name, bases=bases):
                # What is made of a class is made of those that it comes from.
                scope.bind(name).values.extend(bases)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    bind_target(target, scope, value)
            case ast.AnnAssign(target=target, value=value):
                bind_target(target, scope, value)
            case ast.AugAssign(target=target):
                bind_target(target, scope, None)
            case ast.For() | ast.AsyncFor():
                bind_target(node.target, scope, None)
                bind_block([*node.body, *node.orelse], scope)
            case ast.While() | ast.If():
                bind_block([*node.body, *node.orelse], scope)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    if item.optional_vars:
                        bind_target(item.optional_vars, scope, None)
                bind_block(node.body, scope)
            case ast.Try() | ast.TryStar():
                bind_block([*node.body, *node.orelse, *node.finalbody], scope)
                for handler in node.handlers:
                    if handler.name:
                        scope.bind(handler.name)
                    bind_block(handler.body, scope)
            case ast.Match():
                for case in node.cases:
                    _bind_pattern(case.pattern, scope)
                    bind_block(case.body, scope)
            case _:
                pass


def bind_attributes(body: Iterable[ast.stmt], scope: Scope) -> None:
    """Bind what the methods of a class assign to attributes of `self`."""
    for method in body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assigned = [
            (target.attr, node.value)
            for node in ast.walk(method)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
        ]
        if assigned:
            inner = Scope(parent=scope)
            bind_parameters(method.args, inner)
            bind_block(method.body, inner)
            for name, value in assigned:
                binding, _ = scope.attributes.setdefault(name, (Binding(), inner))
                binding.values.append(value)


def bind_target(target: ast.expr, scope: Scope, value: ast.expr | None) -> None:
    match target:
        case ast.Name(id=name):
            _assign(name, scope, value)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            for element in elements:
                bind_target(element, scope, None)
        case ast.Starred(value=inner):
            bind_target(inner, scope, None)
        case _:  # an attribute or a subscript binds no name
            pass


def _bind_pattern(pattern: ast.pattern, scope: Scope) -> None:
    for node in ast.walk(pattern):
        match node:
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                scope.bind(name)
            case ast.MatchMapping(rest=str(name)):
                scope.bind(name)
            case _:
                pass


def _assign(name: str, scope: Scope, value: ast.expr | None) -> None:
    # A value that is not known is kept as one, so that `values` never takes the others for all.
    scope.bind(name).values.append(value if value is not None else _NOTHING_KNOWN)


_NOTHING_KNOWN = ast.Name(id="", ctx=ast.Load())
