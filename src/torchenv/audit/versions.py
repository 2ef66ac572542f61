"""Which branch of an `if` a release takes, where the condition asks for torch's version."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator

from packaging.version import InvalidVersion, Version

from torchenv.audit.scopes import Scope

Resolve = Callable[[ast.expr, Scope], tuple[str, ...]]

# _TORCH_GREATER_EQUAL_2_3    is_torch_greater_or_equal_than_2_1    TORCH_GE_2_4
_NAMED = re.compile(
    r"(?i)_?(?:is_)?torch_(?:version_)?(?:greater_(?:or_)?equal|ge|gte|at_least)(?:_than)?"
    r"_(\d+)_(\d+)"
)
# torch_version() >= (1, 6, 0)    TORCH_VERSION >= Version("2.3")
_ASKED = re.compile(r"(?i)_?(?:get_)?torch_?version(?:_tuple|_parsed)?")
_AT_LEAST = frozenset({"is_torch_greater_or_equal", "is_torch_at_least", "torch_version_at_least"})
_SYMBOLS = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_OPERATORS: dict[type[ast.cmpop], Callable[[Version, Version], bool]] = {
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.Lt: operator.lt,
}


def decide(test: ast.expr, scope: Scope, release: Version, resolve: Resolve) -> bool | None:
    """Describe how a condition comes out under a release; None where it asks for something else."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = decide(operand, scope, release, resolve)
            return None if inner is None else not inner
        case ast.BoolOp(op=op, values=values):
            settles = isinstance(op, ast.Or)
            told = [decide(value, scope, release, resolve) for value in values]
            if settles in told:
                return settles
            return None if None in told else not settles
        case ast.Name(id=name) | ast.Attribute(attr=name):
            match_ = _NAMED.fullmatch(name)
            return release >= Version(f"{match_[1]}.{match_[2]}") if match_ else None
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
            return _evaluate_call(name, args, release)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            compare = _OPERATORS.get(type(op))
            if compare is None:
                return None
            if (than := _version(right)) and _is_torch(left, scope, resolve):
                return compare(release, than)
            if (than := _version(left)) and _is_torch(right, scope, resolve):
                return compare(than, release)
            return None
        case _:
            return None


def _evaluate_call(name: str, args: list[ast.expr], release: Version) -> bool | None:
    match args:
        case [ast.Constant(value=str(symbol)), version] if name == "is_torch_version":
            than = _version(version)
            return _SYMBOLS[symbol](release, than) if than and symbol in _SYMBOLS else None
        case [version, *_] if name in _AT_LEAST:
            than = _version(version)
            return release >= than if than else None
        case _:
            return None


def _version(node: ast.expr) -> Version | None:
    """Read `"2.3"`, `(2, 3)`, `Version("2.3")` and `version.parse("2.3")`."""
    match node:
        case ast.Call(args=[argument]):
            return _version(argument)
        case ast.Constant(value=str(text)):
            try:
                return Version(text)
            except InvalidVersion:
                return None
        case ast.Tuple(elts=[ast.Constant(value=int(major)), ast.Constant(value=int(minor)), *_]):
            return Version(f"{major}.{minor}")
        case _:
            return None


def _is_torch(node: ast.expr, scope: Scope, resolve: Resolve) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[]) | ast.Name(id=name) if (
            _ASKED.fullmatch(name)
        ):
            return True
        case _:
            pass
    return any(
        "torch.__version__" in resolve(origin, where)
        for origin, where in _find_origins(node, scope)
        if isinstance(origin, ast.Attribute | ast.Name)
    )


def _find_origins(node: ast.expr, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    yield from ((item, scope) for item in ast.walk(node))
    if isinstance(node, ast.Name) and (found := scope.find(node.id)):
        for value in found[0].values:
            yield from ((node, found[1]) for node in ast.walk(value))
