"""A Dockerfile that builds the environment of a target from its lock."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from itertools import groupby

from torchenv.errors import InputError
from torchenv.lockfile.lock import Lock, LockedPackage
from torchenv.lockfile.lockset import LockedTarget

PREFIX = "/opt/torchenv"

# torchenv's word for a platform: what docker and the kernel call it.
_MACHINES = {"linux-x86_64": ("linux/amd64", "x86_64"), "linux-aarch64": ("linux/arm64", "aarch64")}

# What comes with torch beside its family: gigabytes that change only with it.
_OF_TORCH = ("cuda-", "nvidia-", "rocm", "triton", "intel-", "pytorch-")

# uv is there while something is installed, and so is a login for the indexes; neither gets into the image.
_LOGIN = "--mount=type=secret,id=netrc,target=/root/.netrc \\\n"
_MOUNTS = f"RUN --mount=type=bind,from=uv,source=/opt/uv,target=/opt/uv \\\n    {_LOGIN}"
_UV = "/opt/uv/bin/uv"
_INSTALL = "--no-config --no-cache --compile-bytecode --link-mode copy"


def dockerfile(
    target: LockedTarget,
    lock: Lock,
    *,
    family: frozenset[str],
    uv: Callable[[], str],
    base: str | None = None,
    package_index: str | None = None,
) -> str:
    """Write it for a target that has a lock, to be built where the lock is.

    `uv` finds the line that requires uv with its hashes, `base` is the image to build on in place of Python's
    own, and `package_index` where uv comes from. Raises `InputError` for a platform that images are not for.
    """
    if target.platform not in _MACHINES:
        hint = f"build images for {' and '.join(_MACHINES)}"
        raise InputError(f"target {target.name} is for {target.platform}", hint=hint)
    assert target.lock is not None
    docker, machine = _MACHINES[target.platform]
    minor = target.python.rstrip("t")
    image = base or f"python:{minor}-slim"
    torch = target.torch
    index = f" --index-url {shlex.quote(package_index)}" if package_index else ""
    python, fetch_python = "python3", ""
    if target.python != minor:
        install = f"{_UV} python install --no-config --no-bin {target.python}"
        fetch_python = f"    && UV_PYTHON_INSTALL_DIR={PREFIX}/python {install} \\\n"
        python = f"{PREFIX}/python/*/bin/python{target.python}"
    return f"""\
# {target.name}: torch {torch} for {target.platform}, Python {target.python}, built from {target.file} alone:
#     docker build --platform {docker} --secret id=netrc,src=$HOME/.netrc -t {target.name} .
# The secret is the login for indexes that want one: it stays out of the image, and may be left out.
# Unproven until it has run on a device: the machine that builds an image need not have one.
# On the machine it is for: torchenv adopt {PREFIX}/env
FROM {image} AS uv
RUN {_LOGIN}    printf '%s\\n' '{uv()}' > /tmp/uv.txt \\
    && python3 -m pip install --no-cache-dir --no-deps --only-binary :all: --require-hashes{index} \\
    --target /opt/uv -r /tmp/uv.txt

FROM {image}
# Torch's packages have a layer of their own, which stays while only others change.
{_MOUNTS}    test "$(uname -m)" = {machine} \\
    && useradd --create-home --no-log-init --uid 1000 torchenv \\
{fetch_python}    && {_UV} venv --no-config --no-project --python {python} {PREFIX}/env \\
{"".join(_install_torch(lock, target, family))}    && rm -f /tmp/torch.txt

COPY {target.file} {PREFIX}/{target.file}
{_MOUNTS}    printf '%s  %s\\n' {target.lock.removeprefix("sha256:")} {PREFIX}/{target.file} > /tmp/sums \\
    && sha256sum --check /tmp/sums && rm /tmp/sums \\
    && {_UV} pip sync {_INSTALL} --strict --preview-features pylock \\
    --python {PREFIX}/env/bin/python {PREFIX}/{target.file}

USER 1000
WORKDIR /home/torchenv
RUN {PREFIX}/env/bin/python -I -B -c \\
    "import torch; assert torch.__version__.split('+')[0] == '{_public(torch)}'"
ENV VIRTUAL_ENV={PREFIX}/env PATH={PREFIX}/env/bin:$PATH
LABEL torchenv.target="{target.name}" torchenv.torch="{torch}" \\
    torchenv.lockfile.lock="{target.lock}" torchenv.proven="false"
"""


def _install_torch(lock: Lock, target: LockedTarget, family: frozenset[str]) -> Iterator[str]:
    """Install them index by index: with two in one command either could serve what is the other's."""
    own = [package for package in lock.packages if package.name in family or _comes_with_torch(package)]
    for index, packages in groupby(sorted(own, key=_index), key=_index):
        lines = [line for package in packages if (line := _require(package, target))]
        if not lines:
            continue
        named = " \\\n    ".join(f"'{line}'" for line in lines)
        yield f"    && printf '%s\\n' {named} > /tmp/torch.txt \\\n"
        where = f" --default-index {shlex.quote(index)}" if index else ""
        yield f"    && {_UV} pip install {_INSTALL} --no-deps --require-hashes{where} \\\n"
        yield f"    --python {PREFIX}/env/bin/python -r /tmp/torch.txt \\\n"


def _index(package: LockedPackage) -> str:
    return package.index or ""


def _comes_with_torch(package: LockedPackage) -> bool:
    return package.name.startswith(_OF_TORCH)


def _require(package: LockedPackage, target: LockedTarget) -> str | None:
    file = package.choose_file(target.python, target.platform)
    return None if file is None else f"{package.name}=={package.version} --hash=sha256:{file.sha256}"


def _public(torch: str | None) -> str:
    return (torch or "").partition("+")[0]
