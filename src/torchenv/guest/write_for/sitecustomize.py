"""Notes where torch saves checkpoints, and lets it write what an older torch reads; changes no file of it.

`torchenv run` has every Python below it run this file as it starts, through PYTHONPATH or the start-up file
of an environment that torchenv built: it uses the standard library alone, and as little of that as it can.
TORCHENV_WRITTEN names the file that folders are noted in. TORCHENV_WRITE_FOR is the release that is to read
the saves, TORCHENV_WRITE_FOR_TESTED names the releases of torch whose metadata were seen to be readable so;
the word `any` stands for all of them.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

METADATA = "torch.distributed.checkpoint.metadata"
DISTRIBUTED = "torch.distributed.checkpoint.filesystem"
PLAIN = "torch.serialization"
OLDEST = (2, 15)  # the release that began to write strides


class Finder:
    """Waits for the modules that are changed, and is gone from the list of finders once it saw all."""

    def __init__(self, changes: dict[str, Callable[[Any], None]]) -> None:
        self.changes = changes

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self.changes:
            return None
        change = self.changes.pop(name)
        others = [finder for finder in list(sys.meta_path) if finder is not self]
        if not self.changes:
            sys.meta_path.remove(self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                change(module)

            loader.exec_module = exec_module
        return spec


def write_for_older(module: Any) -> None:
    """Let the module pickle what older releases unpickle: no strides, and a path that every Python has."""
    module.StorageMeta.__getstate__ = with_plain_path
    release = sys.modules["torch"].__version__.partition("+")[0]
    if parse_line(release) < OLDEST or parse_line(os.environ["TORCHENV_WRITE_FOR"]) >= OLDEST:
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


def parse_line(release: str) -> tuple[int, ...]:
    """Return the first two numbers of a release."""
    return tuple(int(part) for part in release.split(".")[:2] if part.isdecimal())


def with_plain_path(self: Any) -> dict[str, Any]:
    """Return the state with a path that every Python can make: 3.13 writes pathlib._local, others lack it."""
    state = dict(vars(self))
    if type(state.get("checkpoint_id")).__module__ == "pathlib._local":
        state["checkpoint_id"] = str(state["checkpoint_id"])
    return state


def note_plain_saves(module: Any) -> None:
    """Note the folder of each file that torch.save writes."""

    def find_target(*args: Any, **options: Any) -> Any:
        file = options.get("f", args[1] if len(args) > 1 else None)
        return getattr(file, "name", file)

    module.save = noting(module.save, find_target)


def note_distributed_saves(module: Any) -> None:
    """Note the folder of each distributed checkpoint, once its metadata are written."""
    for name in ("_FileSystemWriter", "FileSystemWriter"):
        writer = getattr(module, name, None)
        if writer is not None and "finish" in vars(writer):
            writer.finish = noting(writer.finish, lambda self, *_, **__: getattr(self, "path", None))


def noting(save: Any, find_target: Callable[..., Any]) -> Any:
    """Return a function that does as `save` does, and notes where it wrote."""
    # Only now: what every Python imports as it starts is felt.
    from contextlib import suppress
    from functools import wraps

    @wraps(save)
    def save_and_note(*args: Any, **options: Any) -> Any:
        result = save(*args, **options)
        # A training never ends because of a note.
        with suppress(Exception):
            note(find_target(*args, **options))
        return result

    return save_and_note


noted: set[str] = set()


def note(target: Any) -> None:
    """Write down the folder that a save is in, once; what is no path is none of ours."""
    if not isinstance(target, (str, os.PathLike)) or "://" in os.fspath(target):
        return
    folder = os.path.dirname(os.path.abspath(os.fspath(target)))
    if folder in noted or "\n" in folder:
        return
    noted.add(folder)
    path = os.environ["TORCHENV_WRITTEN"]
    line = os.fsencode(f"{folder}\n")
    # A link that came with a workspace must not lead into a file of the user's.
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        with open(handle, "rb", closefd=False) as file:
            known = line in file
        if not known:
            # One write: several ranks do this at the same time.
            os.write(handle, line)
    finally:
        os.close(handle)


def chain() -> None:
    """Run the sitecustomize that this one stands in front of, if there is one."""
    here = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) != here]
    ours = sys.modules.pop(__name__, None)
    try:
        import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


def start() -> None:
    """Wait for torch, as far as a variable asks for it; a second call in one process changes nothing."""
    changes: dict[str, Callable[[Any], None]] = {}
    if "TORCHENV_WRITE_FOR" in os.environ:
        changes[METADATA] = write_for_older
    if "TORCHENV_WRITTEN" in os.environ:
        changes[PLAIN] = note_plain_saves
        changes[DISTRIBUTED] = note_distributed_saves
    # Both the start-up file of an environment and PYTHONPATH may lead here.
    if changes and not hasattr(sys, "_torchenv_hook"):
        sys._torchenv_hook = True  # type: ignore[attr-defined]
        sys.meta_path.insert(0, Finder(changes))
    if changes and __name__ == "sitecustomize":
        chain()


start()
