"""Lets torch write distributed checkpoints that an older torch reads, and changes no file of it.

`torchenv run --write-for` puts this directory on PYTHONPATH, so every Python below it runs this file as it
starts: it uses the standard library alone, and as little of that as it can. TORCHENV_WRITE_FOR_TESTED names
the releases of torch whose metadata were seen to be readable so; the word `any` stands for all of them.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

MODULE = "torch.distributed.checkpoint.metadata"
OLDEST = (2, 15)  # the release that began to write strides


class Finder:
    """Waits for the one module, and is gone from the list of finders once it is asked for."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        found = (finder.find_spec(name, path, target) for finder in list(sys.meta_path))
        spec = next((each for each in found if each is not None), None)
        if spec is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                change(module, sys.modules["torch"].__version__)

            loader.exec_module = exec_module
        return spec


def change(module: Any, version: str) -> None:
    """Let the module pickle what releases before 2.15 unpickle; an older torch does so by itself."""
    release = version.partition("+")[0]
    if tuple(int(each) for each in release.split(".")[:2] if each.isdecimal()) < OLDEST:
        return
    tested = os.environ.get("TORCHENV_WRITE_FOR_TESTED", "").split(",")
    if release not in tested and "any" not in tested:
        raise ImportError(
            f"`torchenv run --write-for` was not tested with torch {release}; `--force` uses it all the same"
        )
    state = module.TensorProperties.__getstate__

    def without_strides(self: Any) -> Any:
        # dtype, layout, requires_grad, memory format, pin_memory; strides, which no reader uses
        return state(self)[:5]

    module.TensorProperties.__getstate__ = without_strides
    module.StorageMeta.__getstate__ = with_plain_path


def with_plain_path(self: Any) -> dict[str, Any]:
    """Return the state with a path that every Python can make: 3.13 writes pathlib._local, others lack it."""
    state = dict(vars(self))
    if type(state.get("checkpoint_id")).__module__ == "pathlib._local":
        state["checkpoint_id"] = str(state["checkpoint_id"])
    return state


def chain() -> None:
    """Run the sitecustomize that this one stands in front of, if there is one."""
    here = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.realpath(each) != here]
    ours = sys.modules.pop(__name__, None)
    try:
        import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


if "TORCHENV_WRITE_FOR" in os.environ:
    sys.meta_path.insert(0, Finder())
    chain()
