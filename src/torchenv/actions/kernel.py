"""Make an environment a kernel that notebooks can choose, by its own path and never through `current`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from torchenv.actions.run import ProgramEntry, entry
from torchenv.environment.inspect import canonical, describe, distributions
from torchenv.errors import InputError
from torchenv.installers import interpreter_in
from torchenv.system.disk import Disk
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store


@dataclass(frozen=True, slots=True)
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
    """Write the kernel's specification; raises `InputError` where the environment has no ipykernel."""
    around = entry(environment, store, {})
    if "ipykernel" not in {
        canonical(distribution.name) for distribution in distributions(describe(around.directory))
    }:
        hint = "add ipykernel to [packages] requirements of the profile and make a new environment"
        raise InputError(f"environment {environment} has no ipykernel, which a kernel needs", hint=hint)
    kernel = _kernel(environment, data)
    python = str(interpreter_in(around.directory))
    specification = {
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
    disk.make_directory(kernel.directory)
    disk.write(kernel.directory / "kernel.json", json.dumps(specification, indent=1) + "\n")
    return kernel


def _without(around: ProgramEntry) -> list[str]:
    """Take away what would mislead the devices: Jupyter can set a variable, and not unset one."""
    names = [item for item in around.unset if not item.startswith(("PYTHON", "VIRTUAL_ENV"))]
    return ["env", *(word for name in names for word in ("-u", name))] if names else []


def remove_kernel(environment: Environment, data: Path, disk: Disk) -> Kernel:
    """Delete the kernel of an environment, even of a removed one; raises `InputError` where it has none."""
    kernel = _kernel(environment, data)
    if not (kernel.directory / "kernel.json").is_file():
        raise InputError(f"environment {environment} is not a kernel in {data / 'kernels'}")
    disk.delete(kernel.directory)
    return kernel


def _kernel(environment: Environment, data: Path) -> Kernel:
    # Two projects may each have an environment of this name, and Jupyter knows all kernels by name alone.
    place = sha256(environment.path.encode()).hexdigest()[:8]
    name = f"torchenv-{environment.name}-{place}".lower().replace("+", "-")
    return Kernel(name, data / "kernels" / name)
