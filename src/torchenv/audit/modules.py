"""Python code as a syntax tree in which every name is followed to what was imported."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from torchenv.audit.scopes import Binding, Scope
from torchenv.audit.walking import Reference, SyntaxWalk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torchenv.audit.breakages import Breakages


class Module:
    """One parsed file. Raises `SyntaxError`, `ValueError` or `RecursionError` where ast does."""

    def __init__(self, source: str | bytes, breakages: Breakages) -> None:
        self.tree = ast.parse(source)
        self.scope = Scope(parent=None)
        self._spellings = breakages.spellings
        walk = SyntaxWalk(self.resolve, self.spell, breakages.version)
        walk.walk(self.tree.body, self.scope)
        self.texts = walk.texts
        self.members = walk.members
        self.loops = walk.loops
        self.stores = walk.stores
        self.names = walk.names
        self._by_path: dict[str, list[Reference]] = {}
        for reference in walk.references:
            for path in reference.paths:
                self._by_path.setdefault(path, []).append(reference)

    def uses(self, *paths: str) -> list[Reference]:
        """Return the references to any of these dotted paths, in the order of the file."""
        found = {id(item): item for path in paths for item in self._by_path.get(path, ())}
        return sorted(found.values(), key=lambda found_item: found_item.place)

    def calls(self, *paths: str) -> list[tuple[ast.Call, Scope]]:
        """Return the calls of any of these dotted paths, in the order of the file."""
        return [
            (self._unfold(use.call, use.scope), use.scope)
            for use in self.uses(*paths)
            if use.call is not None
        ]

    def member_calls(self, name: str) -> Iterator[tuple[ast.Call, Scope]]:
        """Yield the calls of a method of this name, whatever it is a method of."""
        attributes = {id(node): scope for node, scope in self.members if node.attr == name}
        if attributes:
            for node in ast.walk(self.tree):
                if isinstance(node, ast.Call) and id(node.func) in attributes:
                    yield node, attributes[id(node.func)]

    def _unfold(self, call: ast.Call, scope: Scope) -> ast.Call:
        """Return a call of a `functools.partial` as the call that it makes."""
        for made in self.origins(call.func, scope):
            if isinstance(made, ast.Call) and made.args and self._is_partial(made, scope):
                whole = ast.Call(
                    func=made.args[0],
                    args=[*made.args[1:], *call.args],
                    keywords=[*made.keywords, *call.keywords],
                )
                return ast.copy_location(whole, call)
        return call

    def _is_partial(self, call: ast.Call, scope: Scope) -> bool:
        return "functools.partial" in self.resolve(call.func, scope)

    def mentions(self, prefix: str) -> bool:
        """Return whether anything at or under a dotted path is used."""
        return any(path == prefix or path.startswith(prefix + ".") for path in self._by_path)

    def resolve(self, node: ast.expr, scope: Scope) -> tuple[str, ...]:
        """Follow an expression to the dotted paths it may stand for."""
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=attr) if binding := scope.find_attribute(attr):
                return self._resolve_binding(binding)
            case ast.Attribute(value=value, attr=attr):
                return self.spell(f"{path}.{attr}" for path in self.resolve(value, scope))
            case ast.Name(id=name):
                return self._resolve_name(name, scope)
            case ast.Call(func=func, args=[ast.Constant(value=str(path)), *_]):
                loads = "importlib.import_module" in self.resolve(func, scope)
                return self.spell([path]) if loads else ()
            # getattr(dist, "init_process_group"); with a third argument it asks whether there is one.
            case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(attr))]):
                return self.spell(f"{path}.{attr}" for path in self.resolve(value, scope))
            case ast.Call(args=[made, *_]) if self._is_partial(node, scope):
                return self.resolve(made, scope)
            case _:
                return ()

    def _resolve_name(self, name: str, scope: Scope) -> tuple[str, ...]:
        found = scope.find(name)
        if found is None:
            if name and hasattr(builtins, name):
                return (f"builtins.{name}",)
            return self.spell(f"{star}.{name}" for star in scope.all_stars())
        return self._resolve_binding(found)

    def _resolve_binding(self, found: tuple[Binding, Scope]) -> tuple[str, ...]:
        binding, where = found
        if binding.resolved is None:
            # A name that is made from itself adds nothing to what it stands for.
            binding.resolved = ()
            paths = list(self.spell(binding.paths))
            for value in binding.values:
                paths += self.resolve(value, where)
            binding.resolved = tuple(dict.fromkeys(paths))
        return binding.resolved

    def spell(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Write each path in its canonical spelling."""
        return tuple(self._canonical(path) for path in paths)

    def _canonical(self, path: str) -> str:
        head = path
        while head:
            if head in self._spellings:
                return self._canonical(self._spellings[head] + path[len(head) :])
            head = head.rpartition(".")[0]
        return path

    def values(self, node: ast.expr | None, scope: Scope) -> set[object]:
        """Return the constants that an expression may be; `UNKNOWN` stands for all else."""
        options = self.origins(node, scope) if node is not None else iter(())
        found: set[object] = {
            option.value if isinstance(option, ast.Constant) else UNKNOWN
            for option in options
            if not isinstance(option, ast.IfExp | ast.BoolOp)
        }
        return found or {UNKNOWN}

    def origins(
        self,
        node: ast.expr,
        scope: Scope,
        *,
        members: bool = False,
        seen: set[int] | None = None,
    ) -> Iterator[ast.expr]:
        """Yield an expression, its alternatives, and what was assigned where it is a name.

        With `members`, a dictionary, list or tuple gives what it holds too.
        """
        seen = set() if seen is None else seen
        inner: list[ast.expr] = []
        where = scope
        match node:
            case ast.Name(id=name) if found := scope.find(name):
                binding, where = found
                if id(binding) not in seen:
                    seen.add(id(binding))
                    inner = binding.values
            case ast.Attribute(value=ast.Name(id="self"), attr=attr) if found := scope.find_attribute(attr):
                binding, where = found
                if id(binding) not in seen:
                    seen.add(id(binding))
                    inner = binding.values
            case ast.IfExp(body=body, orelse=orelse):
                inner = [body, orelse]
            case ast.BoolOp(values=values):
                inner = values
            case _:
                yield node
                match node:
                    case ast.Dict(values=held) | ast.List(elts=held) | ast.Tuple(elts=held):
                        inner = held if members else []
                    case _:
                        pass
        for item in inner:
            yield from self.origins(item, where, members=members, seen=seen)

    def says(self, node: ast.expr, scope: Scope, word: str, name: str) -> bool:
        """Return whether an expression is made from the text `word` or something called `name`."""
        waiting, seen = [(node, scope)], set[int]()
        while waiting:
            made, where = waiting.pop()
            for item in ast.walk(made):
                match item:
                    case ast.Constant(value=value) if value == word:
                        return True
                    case ast.Name(id=called) | ast.Attribute(attr=called) if called == name:
                        return True
                    case ast.Name(id=called) if found := where.find(called):
                        if id(found[0]) not in seen:
                            seen.add(id(found[0]))
                            waiting += [(value, found[1]) for value in found[0].values]
                    case _:
                        pass
        return False


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """Return what a call passes for a parameter, by name or by position."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is not None and position < len(call.args):
        before = call.args[: position + 1]
        return None if any(isinstance(item, ast.Starred) for item in before) else before[-1]
    return None


def is_open(call: ast.Call) -> bool:
    """Return whether a call passes arguments that cannot be seen: `*args` or `**kwargs`."""
    stars = any(isinstance(item, ast.Starred) for item in call.args)
    return stars or any(keyword.arg is None for keyword in call.keywords)
