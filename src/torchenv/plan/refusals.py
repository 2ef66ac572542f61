"""Why a build does not suit, as values and as a sentence: the one place that words refusals."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from torchenv.catalogue.releases import Release
from torchenv.host.model import AmdDevice, Capability, Host, IntelDevice, NvidiaDevice
from torchenv.plan.values import Refusal

MAKERS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}

# The flags that settle what cannot be read, by the maker of the device.
_SETTLED_BY = {
    "nvidia": "name it with --capability, or choose a build with --backend",
    "amd": "choose a build with --backend",
    "intel": "choose a build with --backend",
}


def refuse_platform(platform: str, why: str | None = None) -> Refusal:
    """Refuse a build that is not made for this platform; `why` where no release is."""
    return Refusal("platform-unsupported", why or f"is not built for {platform}", found=platform)


def refuse_libc_family(family: str) -> Refusal:
    """Refuse a C library that no wheel is built for."""
    return Refusal("libc-unsupported", f"needs glibc, this host has {family}", "glibc", family)


def refuse_libc(needed: Version, found: Version) -> Refusal:
    """Refuse a glibc that is too old."""
    said = f"needs glibc {needed} or newer, this host has {found}"
    return Refusal("libc-too-old", said, str(needed), str(found))


def refuse_macos(needed: Version, found: Version) -> Refusal:
    """Refuse a macOS that the wheel does not install on."""
    said = f"installs on macOS {needed} or newer, this host has {found}"
    return Refusal("macos-too-old", said, str(needed), str(found))


def refuse_mps(needed: Version, found: Version) -> Refusal:
    """Refuse a macOS on which the GPU would stay unused."""
    said = f"uses the GPU (MPS) from macOS {needed} on, this host has {found}"
    return Refusal("macos-too-old", said, str(needed), str(found))


def refuse_driver(needed: Version, found: Version) -> Refusal:
    """Refuse a driver below the floor of a CUDA major."""
    said = f"needs driver {needed} or newer, this host has {found}"
    return Refusal("driver-too-old", said, str(needed), str(found))


def refuse_new_driver(gpu: NvidiaDevice, capability: Capability, *, last: Version, found: Version) -> Refusal:
    """Refuse a driver that no longer drives a card; `last` is the branch that still did."""
    said = f"driver {last} is the last that supports {gpu.name} ({capability}), this host has {found}"
    return Refusal("driver-too-new", said, str(last), str(found), gpu.index)


def refuse_unknown_driver() -> Refusal:
    """Refuse to guess the version of a driver."""
    said = "the version of the NVIDIA driver cannot be read; choose a build with --backend"
    return Refusal("driver-unknown", said)


def refuse_jetson(host: Host, needed: Version | None) -> Refusal:
    """Refuse a Jetson whose driver is of its own series, for which NVIDIA makes the wheels."""
    known = [f"Jetson Linux {host.nvidia.l4t}"] if host.nvidia.l4t else []
    known += [f"driver {host.nvidia.driver}"] if host.nvidia.driver else []
    which = f" ({', '.join(known)})" if known else ""
    on = f"runs on Jetsons from driver {needed} (JetPack 7) on" if needed else "does not run on Jetsons"
    said = f"{on}, not on this one{which}: use the wheels that NVIDIA makes for its JetPack"
    return Refusal("platform-unsupported", said, str(needed) if needed else None, which.strip(" ()") or None)


def refuse_capability(gpu: NvidiaDevice, capability: Capability, codes: Sequence[Capability]) -> Refusal:
    """Refuse a GPU that the build has no code for."""
    said = f"has no kernels for {gpu.name} (compute capability {capability})"
    oldest = str(min(codes)) if codes and capability < min(codes) else None
    if oldest:
        said += f"; its kernels start at {oldest}"
    return Refusal("capability-unsupported", said, oldest, str(capability), gpu.index)


def refuse_unknown_capability(gpu: NvidiaDevice) -> Refusal:
    """Refuse to guess what an NVIDIA GPU is."""
    said = f"the compute capability of {gpu.name} is not known, and this build does not support every card"
    return Refusal("capability-unknown", f"{said}; {_SETTLED_BY['nvidia']}", device=gpu.index)


def refuse_gfx(card: AmdDevice, gfx: str) -> Refusal:
    """Refuse an AMD GPU that the build has no code for."""
    return Refusal("gfx-unsupported", f"has no kernels for {card.name} ({gfx})", found=gfx, device=card.index)


def refuse_unknown_gfx(card: AmdDevice) -> Refusal:
    """Refuse to guess what an AMD GPU is."""
    said = f"the gfx target of {card.name} is not known; {_SETTLED_BY['amd']}"
    return Refusal("capability-unknown", said, device=card.index)


def refuse_xpu(part: IntelDevice) -> Refusal:
    """Refuse an Intel GPU that XPU builds are not for."""
    said = f"{part.name} is not among the GPUs that XPU builds are for"
    return Refusal("capability-unsupported", said, device=part.index)


def refuse_unknown_xpu(part: IntelDevice) -> Refusal:
    """Refuse to guess whether an Intel GPU is served."""
    said = f"whether XPU builds support {part.name} is not known; {_SETTLED_BY['intel']}"
    return Refusal("capability-unknown", said, device=part.index)


def refuse_companion(name: str, version: Version | None, tag: str) -> Refusal:
    """Refuse a build that a package of torch's family does not exist for."""
    if version is None:
        return Refusal("companion-missing", f"has no {name}", name)
    said = f"{name} {version} has no {tag} build; leave it out, or take another backend"
    return Refusal("companion-missing", said, f"{name}=={version}")


def refuse_index(name: str, why: str) -> Refusal:
    """Refuse a build that its index lacks a package for."""
    return Refusal("index-lacks-package", f"{name}: {why}", name)


def refuse_other_maker(backend_vendor: str, vendor: str) -> Refusal:
    """Refuse a build for devices of a maker that this host has none of."""
    found = vendor if vendor in MAKERS else None
    match backend_vendor:
        case "nvidia":
            return Refusal("driver-missing", "needs an NVIDIA GPU", "nvidia", found)
        case "amd":
            return Refusal("gfx-unsupported", "needs an AMD GPU", "amd", found)
        case "intel":
            return Refusal("capability-unsupported", "needs an Intel GPU", "intel", found)
        case _:
            return Refusal("not-preferred", f"would leave the {MAKERS[vendor]} device unused", found=found)


def refuse_excluded(backends: Sequence[str], *, by_hand: bool) -> Refusal:
    """Refuse a backend that was not asked for."""
    by = "--backend" if by_hand else "the profile ([backend] only)"
    return Refusal("not-preferred", f"excluded by {by}", ", ".join(backends))


def refuse_second(tag: str) -> Refusal:
    """Refuse a build that comes after one that suits."""
    return Refusal("not-preferred", f"{tag} comes first", tag)


def refuse_unreachable() -> Refusal:
    """Refuse a build whose index does not answer."""
    return Refusal("index-unreachable", "its index cannot be reached")


def refuse_no_python(why: str) -> Refusal:
    """Refuse a build for which there is no interpreter."""
    return Refusal("no-interpreter", why)


def refuse_old_python(release: Release, found: str, why: str) -> Refusal:
    """Refuse a Python that is too old for a release."""
    said = f"requires Python {release.requires_python}{why}"
    return Refusal("python-too-old", said, str(release.requires_python), found)


def refuse_new_python(newest: str, found: str, why: str) -> Refusal:
    """Refuse a Python that a release has no wheel for yet."""
    return Refusal("python-too-new", why, newest, found)


def name_flags(vendor: str, tag: str | None) -> str:
    """Name the flags that settle what cannot be read of a maker's device; `tag` is its default backend."""
    backend = f"choose a build with --backend {tag}" if tag else "choose a build with --backend"
    return (
        f"name the capability with --capability 8.9 (as it is), or {backend}"
        if vendor == "nvidia"
        else backend
    )
