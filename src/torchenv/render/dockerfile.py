"""A Dockerfile that builds the environment of a target from its lock."""

from __future__ import annotations

from torchenv.errors import InputError
from torchenv.lockfile.lockset import LockedTarget

PREFIX = "/opt/torchenv"

_MACHINES = {"linux-x86_64": "linux/amd64", "linux-aarch64": "linux/arm64"}


def dockerfile(target: LockedTarget, *, uv: str) -> str:
    """Write it for a target that has a lock, to be built where the lock is; `uv` is the version that locked.

    Raises `InputError` for a platform that images are not for.
    """
    machine = _MACHINES.get(target.platform)
    if machine is None:
        hint = f"images are for {' and '.join(_MACHINES)}"
        raise InputError(f"target {target.name} is for {target.platform}", hint=hint)
    assert target.lock is not None
    minor = target.python.rstrip("t")
    torch = target.torch
    python = "python3"
    get_python = ""
    if target.python != minor:
        get_python = f"RUN uv python install --no-bin {target.python}\n"
        python = target.python
    label = target.lock.removeprefix("sha256:")
    return f"""\
# {target.name}: torch {torch} for {target.platform}, Python {target.python}, built from {target.file} alone.
# Unproven until it has run on a device: the machine that builds an image need not have one.
# On the machine it is for: torchenv adopt {PREFIX}/env
FROM --platform={machine} python:{minor}-slim

RUN python3 -m pip install --no-cache-dir uv=={uv}
{get_python}COPY {target.file} {PREFIX}/{target.file}
RUN echo "{label}  {PREFIX}/{target.file}" | sha256sum --check
RUN uv venv --no-config --no-project --python {python} {PREFIX}/env
RUN uv pip sync --no-config --no-cache --strict --preview-features pylock --link-mode copy \\
    --python {PREFIX}/env/bin/python {PREFIX}/{target.file}
RUN {PREFIX}/env/bin/python -I -B -c \\
    "import torch; assert torch.__version__.split('+')[0] == '{_public(torch)}'"

ENV VIRTUAL_ENV={PREFIX}/env PATH={PREFIX}/env/bin:$PATH
LABEL torchenv.target="{target.name}" torchenv.torch="{torch}" \\
    torchenv.lockfile.lock="{target.lock}" torchenv.proven="false"
"""


def _public(torch: str | None) -> str:
    return (torch or "").partition("+")[0]
