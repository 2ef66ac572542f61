"""What around an environment keeps its torch from working: variables, libraries, file systems, rights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from torchenv.environment.findings import EnvironmentFinding
from torchenv.environment.inspect import Installation, Layout, canonical, list_metadata
from torchenv.host.model import Host
from torchenv.system.looking import find_paths
from torchenv.system.values import frozen

# torch.compile and its kernels write some tens of MB, a download of a wheel gigabytes.
TMP_NEEDS = 256 << 20

# Docker gives 64 MB, which one batch of a DataLoader fills.
SHM_NEEDS = 256 << 20

# Libraries that torch brings itself; those of another version are loaded in their place.
_BROUGHT = ("libcudnn", "libnccl", "libcublas", "libcudart", "libtorch", "libc10")


@frozen(kw_only=True)
class Mount:
    """A directory by its file system: bytes free and in all, and whether programs may run from it."""

    path: str
    free: int
    size: int
    is_noexec: bool = False


@frozen(kw_only=True)
class MachineFacts:
    """What the disks and the device files of a machine are like for this user."""

    environment: Mount | None = None
    temporary: Mount | None = None
    shared: Mount | None = None
    closed: tuple[str, ...] = ()
    libcudas: tuple[str, ...] = ()


def read_machine(
    installation: Installation, environ: Mapping[str, str], root: Path = Path("/")
) -> MachineFacts:
    """Look at the file systems and device files that torch uses; nothing is written."""
    devices = (
        *find_paths(root, "dev/nvidia[0-9]*"),
        root / "dev/nvidiactl",
        root / "dev/nvidia-uvm",
        root / "dev/kfd",
    )
    renders = find_paths(root, "dev/dri/renderD*") if os.path.exists(root / "dev/kfd") else ()
    libraries = (
        *find_paths(root, "usr/lib/*/libcuda.so.*"),
        *find_paths(root, "usr/lib/wsl/lib/libcuda.so*"),
    )
    return MachineFacts(
        environment=_read_mount(installation.path),
        temporary=_read_mount(Path(environ.get("TMPDIR") or root / "tmp")),
        shared=_read_mount(root / "dev/shm"),
        closed=tuple(
            str(device)
            for device in sorted({*devices, *renders})
            if os.path.exists(device) and not os.access(device, os.R_OK | os.W_OK)
        ),
        libcudas=tuple(sorted(map(str, libraries))),
    )


def find_machine_causes(
    installation: Installation, facts: MachineFacts, host: Host, environ: Mapping[str, str]
) -> Iterator[EnvironmentFinding]:
    """Yield what the machine and its variables put in torch's way."""
    yield from _rights(facts)
    yield from _wsl(host, facts)
    yield from _library_path(environ)
    yield from _shadows(installation, environ)
    yield from _mounts(facts)


def _rights(facts: MachineFacts) -> Iterator[EnvironmentFinding]:
    for device in facts.closed:
        of_groups = "kfd" in device or "dri" in device
        cure = "sudo usermod -aG render,video $USER" if of_groups else f"sudo chmod a+rw {device}"
        yield EnvironmentFinding("device-permission", device, "this user may not open it", cure)


def _wsl(host: Host, facts: MachineFacts) -> Iterator[EnvironmentFinding]:
    if not host.wsl:
        return
    own = [library for library in facts.libcudas if "/wsl/" in library]
    for library in facts.libcudas:
        if library not in own:
            message = "belongs to a Linux driver, which hides the one of Windows"
            cure = "sudo apt-get remove 'libnvidia-compute-*'"
            yield EnvironmentFinding("wsl-libcuda", library, message, cure)
            return


def _library_path(environ: Mapping[str, str]) -> Iterator[EnvironmentFinding]:
    for variable in ("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH"):
        for entry in filter(None, environ.get(variable, "").split(os.pathsep)):
            place = Path(entry)
            files = [place.name] if os.path.isfile(place) else _list_names(place)
            if brought := sorted(name for name in files if name.startswith(_BROUGHT)):
                message = f"{variable} puts {brought[0]} of this directory before torch's own"
                yield EnvironmentFinding("library-path", entry, message, f"unset {variable}")


def _shadows(installation: Installation, environ: Mapping[str, str]) -> Iterator[EnvironmentFinding]:
    for entry in filter(None, environ.get("PYTHONPATH", "").split(os.pathsep)):
        shadowing = [name for name in ("torch", "numpy", "triton") if os.path.isdir(Path(entry) / name)]
        if shadowing and Path(entry) not in installation.site_packages:
            message = f"PYTHONPATH puts {', '.join(shadowing)} of this directory before the environment's"
            yield EnvironmentFinding("python-path", entry, message, "unset PYTHONPATH")
    home, minor = environ.get("HOME"), ".".join((installation.python or "").split(".")[:2])
    # A venv does not look there, and conda and a system's Python do.
    if (
        not home
        or installation.layout not in {Layout.CONDA, Layout.SYSTEM}
        or environ.get("PYTHONNOUSERSITE")
    ):
        return
    site = Path(home, f".local/lib/python{minor}/site-packages")
    own = list_metadata(installation)
    user = {canonical(name.partition("-")[0]) for name in _list_names(site) if name.endswith("-info")}
    if hidden := sorted(user & own.keys()):
        message = f"holds {', '.join(hidden[:5])}, which come before the environment's own"
        yield EnvironmentFinding("user-site", str(site), message, "export PYTHONNOUSERSITE=1")


def _mounts(facts: MachineFacts) -> Iterator[EnvironmentFinding]:
    environment, temporary, shared = facts.environment, facts.temporary, facts.shared
    if environment is not None and environment.is_noexec:
        message = "lies on a file system that runs no code (noexec)"
        yield EnvironmentFinding("noexec", environment.path, message, "torchenv create --root DIR")
    if temporary is not None and temporary.is_noexec:
        message = "runs no code (noexec), and torch.compile loads what it writes there"
        yield EnvironmentFinding("noexec", temporary.path, message, "export TMPDIR=$HOME/tmp")
    if temporary is not None and temporary.free < TMP_NEEDS:
        message = f"has {temporary.free >> 20} MiB free, too little for torch.compile and for installs"
        yield EnvironmentFinding("tmp-full", temporary.path, message, "export TMPDIR=$HOME/tmp")
    if shared is not None and shared.size < SHM_NEEDS:
        message = f"holds {shared.size >> 20} MiB, too little for the workers of a DataLoader"
        yield EnvironmentFinding("shm-small", shared.path, message, "docker run --shm-size=8g …")


def _read_mount(path: Path) -> Mount | None:
    if not hasattr(os, "statvfs"):
        return None
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return Mount(
        path=str(path),
        free=found.f_bavail * found.f_frsize,
        size=found.f_blocks * found.f_frsize,
        is_noexec=bool(found.f_flag & getattr(os, "ST_NOEXEC", 0)),
    )


def _list_names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are enough
    except OSError:
        return []
