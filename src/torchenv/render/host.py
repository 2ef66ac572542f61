"""A host as people read it."""

from __future__ import annotations

from collections.abc import Iterator

from torchenv.host.model import AmdDevice, Host, IntelDevice, NvidiaDevice, SeenEnvironment, Status


def describe_host(host: Host) -> str:
    """Describe what a machine has, and what a person should know or mend."""
    return "\n".join(_lines(host))


def _lines(host: Host) -> Iterator[str]:
    places = [name for name, there in (("WSL", host.wsl), ("container", host.container)) if there]
    yield f"system: {host.platform}{_system(host)}" + "".join(f", {place}" for place in places)
    driver = f", driver {host.nvidia.driver}" if host.nvidia.driver else ""
    yield f"NVIDIA: {host.nvidia.status.value}{driver}"
    yield from (f"  {_nvidia(device)}" for device in host.nvidia.devices)
    yield f"AMD: {host.amd.status.value}"
    yield from (f"  {_amd(device)}" for device in host.amd.devices)
    yield f"Intel: {host.intel.status.value}"
    yield from (f"  {_intel(device)}" for device in host.intel.devices)
    if host.system == "darwin":
        yield f"Apple: {host.apple.chip or host.apple.status.value}"
    for python in sorted(host.pythons, key=lambda python: python.version, reverse=True):
        kind = f" {python.implementation}" if python.implementation != "cpython" else ""
        yield f"Python {python.version}{'t' if python.free_threaded else ''}{kind}: {python.path}"
    for environment in host.environments:
        torch = f"torch {environment.torch}" if environment.torch else "no torch"
        yield f"environment ({_state(environment)}): {environment.path}, {torch}"
    yield from (f"note: {problem.message}" for problem in host.problems)
    accelerators = (host.nvidia, host.amd, host.intel)
    if all(accelerator.status is Status.ABSENT for accelerator in accelerators) and host.system != "darwin":
        yield "no accelerator found"


def _state(environment: SeenEnvironment) -> str:
    if environment.was_found:
        return "found in this project"
    return "active" if environment.active else "beside"


def _system(host: Host) -> str:
    if host.macos is not None:
        return f", macOS {host.macos}"
    return f", {host.libc.family} {host.libc.version}" if host.libc else ""


def _nvidia(device: NvidiaDevice) -> str:
    capability = device.compute_capability or "unknown"
    mig = ", MIG" if device.mig else ""
    return f"{device.index} {device.name}, compute capability {capability}{mig}{_note_hidden(device.visible)}"


def _amd(device: AmdDevice) -> str:
    part = ", integrated" if device.integrated else ""
    taken = f", taken for {device.override}" if device.override else ""
    gfx = device.gfx or "gfx unknown"
    return f"{device.index} {device.name}, {gfx}{taken}{part}{_note_hidden(device.visible)}"


def _intel(device: IntelDevice) -> str:
    xpu = {True: "XPU", False: "no XPU", None: "XPU unknown"}[device.xpu]
    part = ", integrated" if device.integrated else ""
    return f"{device.index} {device.name}, {xpu}{part}{_note_hidden(device.visible)}"


def _note_hidden(visible: bool) -> str:  # noqa: FBT001
    return "" if visible else ", hidden by a mask"
