"""One walk over a syntax tree that gathers what rules ask about, each with its scope."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchenv.audit.findings import TextPlace
from torchenv.audit.scopes import Scope, bind_attributes, bind_block, bind_parameters, bind_target
from torchenv.audit.versions import decide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from packaging.version import Version

# What a `try` must catch for an import or attribute inside it to be a question rather than a need.
_ABSENT = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError"})
_FORGIVING = _ABSENT | {"Exception", "BaseException"}


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A use of an imported thing: its possible dotted paths, and the call if it is called."""

    paths: tuple[str, ...]
    node: ast.expr | ast.alias
    call: ast.Call | None
    scope: Scope
    guarded: bool

    @property
    def place(self) -> TextPlace:
        return place_of(self.call or self.node)


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A string constant, with `{}` where an f-string computes something."""

    value: str
    node: ast.expr
    is_docstring: bool

    @property
    def place(self) -> TextPlace:
        return place_of(self.node)


class SyntaxWalk:
    """What one walk saw. `resolve` and `spell` are the module's, to follow names while walking.

    A branch that the release does not take, as its condition asks for an older torch, is not seen.
    """

    def __init__(
        self,
        resolve: Callable[[ast.expr, Scope], tuple[str, ...]],
        spell: Callable[[Iterable[str]], tuple[str, ...]],
        release: Version,
    ) -> None:
        self.references: list[Reference] = []
        self.texts: list[Text] = []
        self.members: list[tuple[ast.Attribute, Scope]] = []
        self.loops: list[tuple[ast.For | ast.AsyncFor, Scope]] = []
        self.stores: list[tuple[ast.Subscript, ast.expr, Scope]] = []
        self.names: set[str] = set()
        self._resolve = resolve
        self._spell = spell
        self._release = release
        self._guarded = False

    def walk(self, body: list[ast.stmt], scope: Scope) -> None:
        """See the body of a module, class or function, whose names are bound first."""
        bind_block(body, scope)
        match body:
            case [ast.Expr(value=ast.Constant(value=str(text)) as node), *rest]:
                self.texts.append(Text(text, node, is_docstring=True))
                body = rest
            case _:
                pass
        self._all(body, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        visitor = _VISITORS.get(type(node))
        if visitor is None:
            self._inside(node, scope)
        else:
            visitor(self, node, scope)

    def _inside(self, node: ast.AST, scope: Scope) -> None:
        # As ast.iter_child_nodes, without its cost: most of an audit is spent here.
        for name in node._fields:
            value = getattr(node, name, None)
            if type(value) is list:
                for item in value:
                    if isinstance(item, ast.AST):
                        self._visit(item, scope)
            elif isinstance(value, ast.AST):
                self._visit(value, scope)

    def _all(self, nodes: Iterable[ast.AST], scope: Scope) -> None:
        for node in nodes:
            self._visit(node, scope)

    def see_nothing(self, node: ast.AST, scope: Scope) -> None:
        pass

    def see_import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        prefix = "" if isinstance(node, ast.Import) else "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name != "*":
                path = f"{prefix}.{alias.name}" if prefix else alias.name
                self._refer(self._spell([path]), alias, None, scope)

    def see_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        inner = Scope(parent=scope)
        bind_parameters(node.args, inner)
        self._visit(node.args, scope)
        self._all(node.decorator_list, scope)
        if node.returns:
            self._visit(node.returns, scope)
        before, self._guarded = self._guarded, False
        self.walk(node.body, inner)
        self._guarded = before

    def see_lambda(self, node: ast.Lambda, scope: Scope) -> None:
        inner = Scope(parent=scope)
        bind_parameters(node.args, inner)
        self._visit(node.args, scope)
        self._visit(node.body, inner)

    def see_class(self, node: ast.ClassDef, scope: Scope) -> None:
        self._all([*node.decorator_list, *node.bases, *node.keywords], scope)
        inner = Scope(parent=scope, is_class=True)
        bind_attributes(node.body, inner)
        self.walk(node.body, inner)

    def see_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: Scope
    ) -> None:
        inner = Scope(parent=scope)
        for generator in node.generators:
            bind_target(generator.target, inner, None)
        self._inside(node, inner)

    def see_try(self, node: ast.Try | ast.TryStar, scope: Scope) -> None:
        before, self._guarded = self._guarded, self._guarded or _forgives(node.handlers)
        seen = len(self.references)
        self._all(node.body, scope)
        asked = (path for reference in self.references[seen:] for path in reference.paths)
        of_torch = any(path.partition(".")[0] == "torch" for path in asked)
        for handler in node.handlers:
            # The name of an older torch is taken where that of a newer one is not there.
            self._guarded = before or (of_torch and not _ABSENT.isdisjoint(_names(handler.type)))
            self._visit(handler, scope)
        self._guarded = before
        self._all([*node.orelse, *node.finalbody], scope)

    def see_if(self, node: ast.If, scope: Scope) -> None:
        self._visit(node.test, scope)
        taken = decide(node.test, scope, self._release, self._resolve)
        if taken is not False:
            self._all(node.body, scope)
        if taken is not True:
            self._all(node.orelse, scope)

    def see_for(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
        self.loops.append((node, scope))
        self._inside(node, scope)

    def see_assign(self, node: ast.Assign, scope: Scope) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                self.stores.append((target, node.value, scope))
        self._inside(node, scope)

    def see_named(self, node: ast.NamedExpr, scope: Scope) -> None:
        bind_target(node.target, scope, node.value)
        self._visit(node.value, scope)

    def see_call(self, node: ast.Call, scope: Scope) -> None:
        match node.func:
            case ast.Name():
                self.see_name(node.func, scope, node)
            case ast.Attribute():
                self.see_attribute(node.func, scope, node)
            case ast.Call():
                # getattr(dist, "all_reduce")(x)    partial(dcp.save, state)()
                self._refer(self._resolve(node.func, scope), node.func, node, scope)
                self._visit(node.func, scope)
            case _:
                self._visit(node.func, scope)
        self._all(node.args, scope)
        for keyword in node.keywords:
            self._visit(keyword.value, scope)

    def see_name(self, node: ast.Name, scope: Scope, call: ast.Call | None = None) -> None:
        if isinstance(node.ctx, ast.Load):
            self.names.add(node.id)
            self._refer(self._resolve(node, scope), node, call, scope)

    def see_attribute(self, node: ast.Attribute, scope: Scope, call: ast.Call | None = None) -> None:
        paths: tuple[str, ...] = ()
        if isinstance(node.ctx, ast.Load):
            self.names.add(node.attr)
            self.members.append((node, scope))
            paths = self._resolve(node, scope)
            self._refer(paths, node, call, scope)
        if not paths:
            self._visit(node.value, scope)

    def _refer(
        self,
        paths: tuple[str, ...],
        node: ast.expr | ast.alias,
        call: ast.Call | None,
        scope: Scope,
    ) -> None:
        if paths:
            self.references.append(Reference(paths, node, call, scope, self._guarded))

    def see_constant(self, node: ast.Constant, scope: Scope) -> None:  # noqa: ARG002
        if isinstance(node.value, str):
            self.texts.append(Text(node.value, node, is_docstring=False))

    def see_joined(self, node: ast.JoinedStr, scope: Scope) -> None:
        pieces = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
        text = "".join(str(piece) for piece in pieces)
        self.texts.append(Text(text, node, is_docstring=False))
        self._all((v for v in node.values if isinstance(v, ast.FormattedValue)), scope)


# A table of the class's own: a walk that held its own methods would have to wait for the collector.
_VISITORS: dict[type[ast.AST], Callable[..., None]] = {
    ast.Import: SyntaxWalk.see_import,
    ast.ImportFrom: SyntaxWalk.see_import,
    ast.FunctionDef: SyntaxWalk.see_function,
    ast.AsyncFunctionDef: SyntaxWalk.see_function,
    ast.Lambda: SyntaxWalk.see_lambda,
    ast.ClassDef: SyntaxWalk.see_class,
    ast.ListComp: SyntaxWalk.see_comprehension,
    ast.SetComp: SyntaxWalk.see_comprehension,
    ast.DictComp: SyntaxWalk.see_comprehension,
    ast.GeneratorExp: SyntaxWalk.see_comprehension,
    ast.Try: SyntaxWalk.see_try,
    ast.TryStar: SyntaxWalk.see_try,
    ast.If: SyntaxWalk.see_if,
    ast.For: SyntaxWalk.see_for,
    ast.AsyncFor: SyntaxWalk.see_for,
    ast.Assign: SyntaxWalk.see_assign,
    ast.NamedExpr: SyntaxWalk.see_named,
    ast.Call: SyntaxWalk.see_call,
    ast.Name: SyntaxWalk.see_name,
    ast.Attribute: SyntaxWalk.see_attribute,
    ast.Constant: SyntaxWalk.see_constant,
    ast.JoinedStr: SyntaxWalk.see_joined,
    ast.Load: SyntaxWalk.see_nothing,
    ast.Store: SyntaxWalk.see_nothing,
}


def place_of(node: ast.expr | ast.stmt | ast.alias) -> TextPlace:
    return TextPlace(node.lineno, node.col_offset + 1, node.end_lineno or node.lineno)


def _forgives(handlers: list[ast.ExceptHandler]) -> bool:
    caught = (name for handler in handlers for name in _names(handler.type))
    return any(handler.type is None for handler in handlers) or not _FORGIVING.isdisjoint(caught)


def _names(node: ast.expr | None) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.Tuple(elts=elements):
            for element in elements:
                yield from _names(element)
        case _:
            pass
