"""Write which names `torch.load` opens by default, release by release, from the sources of their wheels.

    python scripts/trusted_names.py 2.14.1=DIRECTORY 2.15.0=DIRECTORY ... > \
        src/torchenv/catalogue/data/checkpoint-names.toml

Each DIRECTORY holds the `torch/` of a release's wheel, unpacked, of any platform: only its Python sources
are read. They are not imported: the function that makes the list is run with stand-ins that know nothing but
their names.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HEAD = """\
# Which names torch.load opens by default (`weights_only=True`), by release, without an import by the user.
# Written by scripts/trusted_names.py; two of the lists are held against real releases by a real run.
schema = 1
source = "torch/_weights_only_unpickler.py of the wheels of {releases}"
"""

# The classes that torch makes in C++, asked of torch 2.14.1 and 2.15.0 (`torch._tensor_classes`).
TYPES = ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
TENSOR_CLASSES = [
    *((module, f"{kind}Tensor") for module in ("torch", "torch.cuda") for kind in TYPES),
    *(
        (module, f"{kind}Tensor")
        for module in ("torch.sparse", "torch.cuda.sparse")
        for kind in TYPES
        if kind != "Bool"
    ),
]
# A dtype's second name, and the one that it says it has.
SAID = {
    "double": "float64", "float": "float32", "half": "float16", "long": "int64", "int": "int32",
    "short": "int16", "cfloat": "complex64", "cdouble": "complex128", "chalf": "complex32",
}  # fmt: skip


class Named:
    """What stands for anything of torch's: it knows its path."""

    def __init__(self, path: str, module: str = "") -> None:
        self.path = path
        self.__name__ = path.rpartition(".")[2]
        self.__module__ = module or path.rpartition(".")[0]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Named(f"{self.path}.{SAID.get(name, name) if self.path == 'torch' else name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __str__(self) -> str:
        return self.path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)


def main(arguments: list[str]) -> None:
    lists = dict(
        sorted(
            ((release, allowed_names(Path(directory))) for release, _, directory in
             (argument.partition("=") for argument in arguments)),
            key=lambda item: version(item[0]),
        )
    )  # fmt: skip
    lines = [release.rpartition(".")[0] for release in lists]
    print(HEAD.format(releases=", ".join(lists)), end="")
    spans: dict[tuple[str, str], list[str]] = {}
    for name in sorted(set().union(*lists.values())):
        there = [name in names for names in lists.values()]
        first, last = there.index(True), len(there) - 1 - there[::-1].index(True)
        if not all(there[first : last + 1]):
            raise SystemExit(f"{name} was taken from the list and put back: write that as two ranges")
        spans.setdefault((lines[first], lines[last]), []).append(name)
    for (oldest, newest), names in sorted(
        spans.items(), key=lambda item: [version(text) for text in item[0]]
    ):
        print("\n[[trusted]]")
        if oldest != lines[0]:
            print(f'weights-only = "{oldest}"')
        if newest != lines[-1]:
            print(f'weights-only-max = "{newest}"')
        print("names = [")
        print("".join(f'    "{line}",\n' for line in by_module(names)), end="")
        print("]")


def by_module(names: Iterable[str]) -> Iterator[str]:
    modules: dict[str, list[str]] = {}
    for name in names:
        module, _, own = name.rpartition(".")
        modules.setdefault(module, []).append(own)
    for module, owned in modules.items():
        line = module
        for own in owned:
            if len(line) + len(own) > 110:
                yield line
                line = module
            line += f" {own}"
        yield line


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def allowed_names(directory: Path) -> set[str]:
    """Run the function of a release that makes its list."""
    top = directory / "torch"
    storage = functions(top / "storage.py", ("_dtype_to_storage_type_map", "_new_dtypes"))
    unpickler = functions(
        top / "_weights_only_unpickler.py", ("_get_allowed_globals", "_tensor_rebuild_functions")
    )
    torch: Any = Named("torch")
    torch.storage = Named("torch.storage")
    for name, function in made(storage, torch).items():
        setattr(torch.storage, name, function)
    torch._tensor_classes = [  # noqa: SLF001 - torch's own name
        Named(f"{module}.{name}") for module, name in TENSOR_CLASSES
    ]
    torch._storage_classes = list(storage_classes(top))  # noqa: SLF001
    return set(made(unpickler, torch)["_get_allowed_globals"]())


def functions(path: Path, names: tuple[str, ...]) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text("utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in found:
        node.decorator_list, node.returns = [], None
    return found


def made(found: list[ast.FunctionDef], torch: Named) -> dict[str, Any]:
    """Compile functions with stand-ins for every name that they take from their module."""
    names = {node.id for each in found for node in ast.walk(each) if isinstance(node, ast.Name)}
    space: dict[str, Any] = {name: Named(name) for name in names if not hasattr(builtins, name)}
    space["torch"] = torch
    # The annotations of its variables are not looked at.
    module = ast.Module([*ast.parse("from __future__ import annotations").body, *found], [])
    exec(compile(module, "torch", "exec"), space)
    return {node.name: space[node.name] for node in found}


def storage_classes(top: Path) -> Iterator[Named]:
    """Yield the classes of `torch._storage_classes`: those of a set, and those that torch.cuda adds."""
    for node in ast.walk(ast.parse((top / "__init__.py").read_text("utf-8"))):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        named = [target.id for target in targets if isinstance(target, ast.Name)]
        if named == ["_storage_classes"] and isinstance(node, (ast.Assign, ast.AnnAssign)):
            for item in node.value.elts if isinstance(node.value, ast.Set) else ():
                name = item.id if isinstance(item, ast.Name) else ""
                own = "torch.storage" if name in ("UntypedStorage", "TypedStorage") else "torch"
                yield Named(f"{own}.{name}")
    for node in ast.walk(ast.parse((top / "cuda" / "__init__.py").read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch._storage_classes.add":
            yield Named(f"torch.cuda.{ast.unparse(node.args[0])}")


if __name__ == "__main__":
    main(sys.argv[1:])
