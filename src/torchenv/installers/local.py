"""The folders of a project that are packages: installed where they lie, without their dependencies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from torchenv.errors import InputError
from torchenv.installers import interpreter_in
from torchenv.installers.trouble import explain_failure
from torchenv.installers.uv import uv_program
from torchenv.packages import LocalPackage
from torchenv.system.process import Command, Runner


def install_local(
    run: Runner, environment: Path, folders: Sequence[LocalPackage], *, package_index: str | None
) -> None:
    """Install folders into an environment that holds what they depend on; torch stays as it is.

    Raises `InputError` for a folder that is gone, `ToolFailed` for one that cannot be built.
    """
    for folder in folders:
        if not os.path.isdir(Path(folder.path)):
            hint = "restore it, or remove it from torchenv.toml and run `torchenv lock`"
            raise InputError(f"{folder.name}: {folder.path} does not exist", hint=hint)
    command = local_command(uv_program(), environment, folders, package_index=package_index)
    done = run(command)
    if done.code != 0:
        raise explain_failure(done, f"install {', '.join(folder.name for folder in folders)}")


def local_command(
    uv: Path, environment: Path, folders: Sequence[LocalPackage], *, package_index: str | None
) -> Command:
    """Build each folder with what its build tool asks for, and install it alone."""
    argv = [str(uv), "pip", "install", "--no-deps", "--no-config", "--no-python-downloads", "--no-sources"]
    # A link into uv's cache would be one file in two environments.
    argv += ["--link-mode", "copy", "--python", str(interpreter_in(environment))]
    argv += ["--default-index", package_index] if package_index else []
    for folder in folders:
        argv += [*(["--editable"] if folder.editable else []), folder.path]
    return Command(tuple(argv))
