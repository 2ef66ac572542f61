"""Why torch does not see or use a GPU that is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from torchenv.catalogue.builds import Backend, Cuda, Rocm
from torchenv.catalogue.releases import Catalogue, Release
from torchenv.environment.findings import EnvironmentFinding
from torchenv.environment.inspect import Installation
from torchenv.host.model import AmdDevice, Host, NvidiaDevice, Status
from torchenv.plan.devices import devices_of, is_integrated
from torchenv.plan.needs import driver_system

MASKS = {
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "amd": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "intel": ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"),
}

# What the probe says of a device; what it says of interpreters and environments is told elsewhere.
_CURES = {
    "driver-library-mismatch": "sudo reboot",
    "driver-not-loaded": "sudo modprobe nvidia",
    "driver-missing": "torchenv probe",
    "driver-unreadable": "nvidia-smi",
    "gpu-lost": "sudo reboot",
    "kfd-missing": "sudo modprobe amdgpu",
    "gfx-override": "unset HSA_OVERRIDE_GFX_VERSION",
    "drivers-disagree": "sudo reboot",
    "nvml-failed": "nvidia-smi",
    "libcuda-failed": "nvidia-smi",
    "nvidia-smi-failed": "nvidia-smi",
}


def find_device_causes(
    installation: Installation, host: Host, catalogue: Catalogue, environ: Mapping[str, str]
) -> Iterator[EnvironmentFinding]:
    """Yield why the torch of an environment cannot use the devices of this host, the nearest cause first."""
    if installation.torch is None:
        return
    torch, path = installation.torch, str(installation.path)
    release = find_release(torch, catalogue)
    backend = find_backend(installation.backend, release, host)
    vendor = backend.vendor if backend else None
    yield from _of_the_machine(host)
    yield from _of_a_container(host)
    if vendor == "cpu" and host.system != "darwin":
        names = [device.name for maker in MASKS for device in _list_usable(maker, host)]
        if names:
            message = f"torch {torch} is a build for the CPU, and this machine has {', '.join(names)}"
            yield EnvironmentFinding("cpu-build", path, message, f"torchenv create {_line(torch)}")
    if host.macos is not None and release is not None and host.macos < release.macos.mps:
        message = f"torch {torch} uses the GPU from macOS {release.macos.mps} on, and this is {host.macos}"
        older = next((other for other in catalogue.releases if other.macos.mps <= host.macos), None)
        cure = f"torchenv create {older.line}" if older else "torchenv plan"
        yield EnvironmentFinding("macos-too-old", path, message, cure)
    if vendor in MASKS:
        yield from find_hidden(vendor, host, environ)
    if backend is not None:
        yield from _of_the_build(torch, backend, path, host)


def find_release(torch: str, catalogue: Catalogue) -> Release | None:
    """Return what the catalogue knows of a torch by its version; None for one that it does not know."""
    try:
        public = Version(Version(torch).public)
    except InvalidVersion:
        return None
    return next((release for release in catalogue.releases if release.version == public), None)


def find_backend(label: str | None, release: Release | None, host: Host) -> Backend | None:
    """Return the build line of a torch by its label; the package index's wheels carry none on macOS."""
    if release is None:
        return None
    return release.backend(label or release.package_index.get(host.platform, "cpu"))


def find_hidden(vendor: str, host: Host, environ: Mapping[str, str]) -> Iterator[EnvironmentFinding]:
    """Yield the variable that hides devices, with the devices that it hides."""
    hidden = [device.name for device in devices_of(vendor, host) if not device.visible]
    for name in MASKS[vendor]:
        if name in environ and (hidden or environ[name].strip() in {"", "-1"}):
            what = ", ".join(hidden) or "every device"
            message = f"{name}={environ[name]} hides {what}"
            yield EnvironmentFinding("hidden-by-mask", name, message, f"unset {name}")


def list_total_masks(host: Host) -> tuple[str, ...]:
    """Return the variables that hide every device, under which no check of a device can pass."""
    return tuple(problem.source for problem in host.problems if problem.code == "mask-hides-everything")


def _of_the_machine(host: Host) -> Iterator[EnvironmentFinding]:
    for problem in host.problems:
        if problem.code in _CURES:
            yield EnvironmentFinding(problem.code, problem.source, problem.message, _CURES[problem.code])


def _of_a_container(host: Host) -> Iterator[EnvironmentFinding]:
    if not host.container:
        return
    if host.nvidia.status is Status.UNREADABLE and not host.wsl:
        message = (
            "this container sees an NVIDIA card but not its driver: it was started without the NVIDIA runtime"
        )
        yield EnvironmentFinding("container-runtime", "nvidia", message, "docker run --gpus all …")
    if host.amd.status is Status.UNREADABLE:
        message = "this container sees an AMD card but not its driver: it was started without its devices"
        cure = "docker run --device /dev/kfd --device /dev/dri …"
        yield EnvironmentFinding("container-runtime", "amd", message, cure)


def _of_the_build(torch: str, backend: Backend, path: str, host: Host) -> Iterator[EnvironmentFinding]:
    match backend.needs:
        case Cuda() as cuda:
            cards = host.nvidia.devices
            floor = cuda.floor.by_system.get(driver_system(host))
            driver = host.nvidia.driver
            if cards and driver is not None and floor is not None and driver < floor:
                code = "jetson-wheel" if host.nvidia.tegra else "driver-too-old"
                message = f"torch {torch} needs NVIDIA driver {floor} or newer, and this is {driver}"
                yield EnvironmentFinding(code, path, message, "torchenv plan")
            for card in cards:
                capability = card.compute_capability
                if card.visible and capability and not cuda.serves(capability, host.platform):
                    message = (
                        f"torch {torch} has no kernels for {card.name} (compute capability {capability})"
                    )
                    yield EnvironmentFinding("no-code", path, message, "torchenv plan")
        case Rocm(gfx=targets):
            for chip in _list_usable("amd", host):
                if isinstance(chip, AmdDevice) and chip.gfx and chip.gfx not in targets:
                    message = f"torch {torch} has no kernels for {chip.name} ({chip.gfx})"
                    yield EnvironmentFinding("no-code", path, message, "torchenv plan")
        case _:
            pass


def _list_usable(vendor: str, host: Host) -> list[NvidiaDevice | AmdDevice]:
    found = (device for device in devices_of(vendor, host) if device.visible and not is_integrated(device))
    return [device for device in found if isinstance(device, NvidiaDevice | AmdDevice)]


def _line(torch: str) -> str:
    return ".".join(torch.split(".")[:2])


def find_label_lies(torch: Mapping[str, Any]) -> Iterator[str]:
    """Describe where the label of a torch differs from what it was compiled for, as it says itself."""
    label = Version(str(torch["version"])).local or ""
    compiled = torch.get("compiled_cuda") or torch.get("cuda")
    # cu132 is CUDA 13.2
    if match := re.fullmatch(r"cu(\d+)(\d)", label):
        named = f"{match[1]}.{match[2]}"
        if compiled != named:
            has = f"CUDA {compiled}" if compiled else "ROCm" if torch.get("hip") else "no CUDA"
            yield f"its label {label} means CUDA {named}, and it was compiled for {has}"
    elif label == "cpu" and compiled:
        yield f"its label is cpu, and it was compiled for CUDA {compiled}"
    elif label.startswith("rocm") and not torch.get("hip"):
        yield f"its label is {label}, and it was not compiled for ROCm"
    if compiled and torch.get("cuda") and compiled != torch["cuda"]:
        yield f"torch.version says CUDA {torch['cuda']}, and it was compiled for CUDA {compiled}"
