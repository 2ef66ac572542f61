"""Python files: the tree with its names followed, and what it installs and sets."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from torchenv.audit.commands import Word
from torchenv.audit.installs import InstallCommand, NamedRequirement, install_of, parse_requirement
from torchenv.audit.modules import Module, argument
from torchenv.audit.readers.scripts import find_quoted_installs
from torchenv.audit.sources import FileKind, NamedInterpreter, Setting, Source
from torchenv.audit.walking import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def read_python(path: str, kind: FileKind, content: bytes, breakages: Breakages) -> Source:
    module = parse(content, breakages)
    return Source(
        path=path,
        kind=kind,
        text=content.decode("utf-8", errors="replace"),
        module=module,
        installs=(*installs_in(module), *_setup_installs(module)),
        interpreters=tuple(_setup_pythons(module)),
        settings=tuple(settings_in(module)),
    )


def parse(content: str | bytes, breakages: Breakages) -> Module:
    """Parse Python code. Raises `ValueError` that says where it is not."""
    import warnings

    try:
        # The warnings are about other people's code, and are not for the user of the audit.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Module(content, breakages)
    except SyntaxError as error:
        raise ValueError(f"not Python: line {error.lineno}: {error.msg}") from None
    except MemoryError:
        # What the parser says of brackets without end.
        raise RecursionError from None


def installs_in(module: Module) -> tuple[InstallCommand, ...]:
    """Read commands that code prints, runs through a shell, or passes as a list of words."""
    found: list[InstallCommand] = []
    for text in module.texts:
        if "install " in text.value or "uv add " in text.value:
            found += find_quoted_installs(text.value, text.place)
    if "install" in module.names:
        # session.install("torch==2.15.0", "--index-url", "…") of nox
        for call, _ in module.member_calls("install"):
            words = tuple(
                Word(item.value, place_of(item))
                for item in call.args
                if isinstance(item, ast.Constant) and isinstance(item.value, str)
            )
            start = place_of(call)
            if words and (install := install_of((Word("pip", start), Word("install", start), *words))):
                found.append(install)
    if any(text.value == "install" for text in module.texts):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.List | ast.Tuple):
                words = tuple(
                    Word(element.value, place_of(element))
                    for element in node.elts
                    if isinstance(element, ast.Constant) and isinstance(element.value, str)
                )
                if install := install_of(words):
                    found.append(install)
    return tuple(found)


def settings_in(module: Module) -> Iterator[Setting]:
    """Read what code writes into the environment of its process and children."""
    for where, value, scope in module.stores:
        if "os.environ" in module.resolve(where.value, scope):
            yield from _setting(where.slice, value)
    for call, _ in module.calls("os.environ.setdefault", "os.putenv"):
        if len(call.args) == 2:
            yield from _setting(call.args[0], call.args[1])
    for call, _ in module.calls("os.environ.update"):
        for item in call.args:
            if isinstance(item, ast.Dict):
                for name, given in zip(item.keys, item.values, strict=True):
                    yield from _setting(name, given)
        for keyword in call.keywords:
            if keyword.arg:
                yield Setting(keyword.arg, _text(keyword.value), place_of(keyword.value))


def _setting(key: ast.expr | None, value: ast.expr) -> Iterator[Setting]:
    name = _text(key)
    if key is not None and name is not None:
        yield Setting(name, _text(value), place_of(key))


def _text(node: ast.expr | None) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _setup_installs(module: Module) -> Iterator[InstallCommand]:
    for call, _ in module.calls("setuptools.setup"):
        listed: list[NamedRequirement] = []
        for name in ("install_requires", "extras_require", "setup_requires"):
            given = argument(call, name)
            for node in ast.walk(given) if given else ():
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    parsed = parse_requirement(node.value, place_of(node))
                    listed += [parsed] if parsed else []
        if listed:
            yield InstallCommand(tuple(listed))


def _setup_pythons(module: Module) -> Iterator[NamedInterpreter]:
    for call, _ in module.calls("setuptools.setup"):
        given = argument(call, "python_requires")
        if given and (text := _text(given)):
            try:
                yield NamedInterpreter(SpecifierSet(text), place_of(given))
            except InvalidSpecifier:
                continue
