"""Make an environment a kernel that notebooks can choose, by its own path and never through `current`."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from torchenv.actions.run import ProgramEntry, entry
from torchenv.environment.inspect import canonical, describe, distributions
from torchenv.errors import InputError
from torchenv.installers import interpreter_in
from torchenv.system.disk import Disk
from torchenv.system.values import frozen
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store


@frozen
class Kernel:
    """A kernel of Jupyter: its name, which `jupyter kernelspec` knows it by, and its directory."""

    name: str
    directory: Path


def jupyter_data(environ: Mapping[str, str], home: Path, system: str) -> Path:
    """Return the user's directory for Jupyter's data, as Jupyter itself finds it.

    `system` is `sys.platform`.
    """
    if environ.get("JUPYTER_DATA_DIR"):
        return Path(environ["JUPYTER_DATA_DIR"])
    if system == "darwin":
        return home / "Library" / "Jupyter"
    if system == "win32":
        return Path(environ.get("APPDATA") or home / "AppData" / "Roaming") / "jupyter"
    return Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "jupyter"


def install_kernel(environment: Environment, store: Store, data: Path, disk: Disk) -> Kernel:
    """Write the kernel's specification; raises `InputError` where the environment has no ipykernel.

    Also where its place holds a link, or a specification that torchenv did not write or that was edited.
    """
    around = entry(environment, store, {})
    if "ipykernel" not in {
        canonical(distribution.name) for distribution in distributions(describe(around.directory))
    }:
        hint = "add ipykernel to [packages] requirements of the profile and make a new environment"
        raise InputError(f"environment {environment} has no ipykernel, which a kernel needs", hint=hint)
    kernel = _kernel(environment, data)
    there = _read_own(kernel)
    if there is not None and _is_edited(there):
        hint = f"keep a copy, then delete it with `torchenv kernel remove {environment.number}`"
        raise InputError(f"`{kernel.directory / _FILE}` was edited since torchenv wrote it", hint=hint)
    python = str(interpreter_in(around.directory))
    specification: dict[str, Any] = {
        "argv": [*_without(around), python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"torch {environment.torch} ({environment.name})",
        "language": "python",
        "metadata": {"debugger": True, "torchenv": {"environment": str(around.directory)}},
        "env": {
            # Jupyter fills in ${PATH} from its own.
            "PATH": f"{around.scripts}{os.pathsep}${{PATH}}",
            # An empty one leads Python nowhere.
            **{name: "" for name in around.unset if name.startswith("PYTHON")},
            **around.set,
        },
    }
    specification["metadata"]["torchenv"]["digest"] = _digest(specification)
    disk.make_directory(kernel.directory)
    disk.put(kernel.directory / _FILE, json.dumps(specification, indent=1) + "\n")
    return kernel


def _without(around: ProgramEntry) -> list[str]:
    """Take away what would mislead the devices: Jupyter can set a variable, and not unset one."""
    names = [item for item in around.unset if not item.startswith(("PYTHON", "VIRTUAL_ENV"))]
    return ["env", *(word for name in names for word in ("-u", name))] if names else []


def remove_kernel(environment: Environment, data: Path, disk: Disk) -> Kernel:
    """Delete the kernel of an environment, even of a removed one; what the user put beside it stays.

    Raises `InputError` where the environment has none, or where torchenv did not write it.
    """
    kernel = _kernel(environment, data)
    if _read_own(kernel) is None:
        raise InputError(f"environment {environment} is not a kernel in {data / 'kernels'}")
    if not disk.delete(kernel.directory / _FILE):
        raise InputError(f"`{kernel.directory / _FILE}` cannot be deleted")
    if not disk.list(kernel.directory):
        disk.delete(kernel.directory)
    return kernel


_FILE = "kernel.json"


def _read_own(kernel: Kernel) -> dict[str, Any] | None:
    """Return the specification that torchenv wrote; None where there is none.

    Raises `InputError` for a link and for what torchenv did not write.
    """
    file = kernel.directory / _FILE
    for path in (kernel.directory, file):
        if path.is_symlink():
            raise _refuse(path, "is a link: torchenv neither writes nor deletes a kernel through links")
    if not os.path.lexists(file):
        return None
    try:
        found = json.loads(file.read_text("utf-8"))
        is_own = isinstance(found["metadata"]["torchenv"]["environment"], str)
    except (OSError, ValueError, KeyError, TypeError):
        is_own = False
    if not is_own:
        raise _refuse(file, "was not written by torchenv")
    return dict(found)


def _refuse(path: Path, why: str) -> InputError:
    moved = shlex.join(["mv", str(path), f"{path}.old"])
    return InputError(f"`{path}` {why}", hint=f"move it away with `{moved}`")


def _is_edited(specification: dict[str, Any]) -> bool:
    # Older releases wrote no digest.
    digest = specification["metadata"]["torchenv"].get("digest")
    return digest is not None and digest != _digest(specification)


def _digest(specification: dict[str, Any]) -> str:
    metadata = specification["metadata"]
    own = {key: value for key, value in metadata["torchenv"].items() if key != "digest"}
    bare = {**specification, "metadata": {**metadata, "torchenv": own}}
    return f"sha256:{sha256(json.dumps(bare, sort_keys=True).encode()).hexdigest()}"


def _kernel(environment: Environment, data: Path) -> Kernel:
    # Two projects may each have an environment of this name, and Jupyter knows all kernels by name alone.
    place = sha256(environment.path.encode()).hexdigest()[:8]
    name = f"torchenv-{environment.name}-{place}".lower().replace("+", "-")
    return Kernel(name, data / "kernels" / name)
