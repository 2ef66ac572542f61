"""Whether one build suits one machine, and if not, why."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.version import Version

from torchenv.catalogue.builds import Backend, Cpu, Cuda, Rocm, Xpu
from torchenv.catalogue.releases import Catalogue, Release
from torchenv.host.model import AmdDevice, Capability, Host, IntelDevice, NvidiaDevice, Status
from torchenv.plan import refusals
from torchenv.plan.devices import Considered, Device
from torchenv.plan.values import IndexFacts, Question, Refusal, Remark, Wish


def refusal_of_system(release: Release, backend: Backend, ask: Question) -> Refusal | None:
    """Test the platform, the C library and macOS; none of them can be vouched for."""
    host, catalogue = ask.host, ask.catalogue
    if host.platform in catalogue.no_wheels:
        return refusals.refuse_platform(host.platform, catalogue.no_wheels[host.platform])
    if host.platform not in backend.platforms:
        return refusals.refuse_platform(host.platform)
    if host.libc is not None and host.libc.family != "glibc":
        return refusals.refuse_libc_family(host.libc.family)
    if host.libc is not None and host.libc.version < release.glibc:
        return refusals.refuse_libc(release.glibc, host.libc.version)
    if host.macos is not None and host.macos < release.macos.installs:
        return refusals.refuse_macos(release.macos.installs, host.macos)
    return None


def refusal_of_mps(release: Release, host: Host) -> Refusal | None:
    """Test whether a Mac's GPU would still be used."""
    if host.macos is not None and host.macos < release.macos.mps:
        return refusals.refuse_mps(release.macos.mps, host.macos)
    return None


def refusal_of_devices(backend: Backend, devices: Iterable[Device], ask: Question) -> Refusal | None:
    """Test the driver and every device; a build serves all of them or it is refused."""
    match backend.needs:
        case Cuda() as cuda:
            gpus = [device for device in devices if isinstance(device, NvidiaDevice)]
            # A card without kernels stays so under any driver: its reason comes first, but on a Jetson whose
            # driver is of its own series.
            return (
                (_refusal_of_driver(cuda, gpus, ask) if ask.host.nvidia.tegra else None)
                or _first(_refuse_known_gpu(cuda, gpu, ask) for gpu in gpus)
                or _refusal_of_driver(cuda, gpus, ask)
                or _first(_refusal_of_unknown_gpu(cuda, gpu, ask) for gpu in gpus)
            )
        case Rocm(gfx=targets):
            cards = [device for device in devices if isinstance(device, AmdDevice)]
            return _first(_refusal_of_gfx(targets, card, ask) for card in cards)
        case Xpu():
            parts = [device for device in devices if isinstance(device, IntelDevice)]
            return _first(_refusal_of_xpu(part, ask.wish) for part in parts)
        case Cpu():
            return None


def refusal_of_packages(
    release: Release, backend: Backend, ask: Question, *, package_index: bool
) -> Refusal | None:
    """Test that the companions that are asked for exist beside this build."""
    for name in ask.wish.packages:
        companion = release.companions.get(name)
        if companion is None:
            return refusals.refuse_companion(name, None, backend.tag)
        if not package_index and companion.exists(backend.tag) is False:
            return refusals.refuse_companion(name, companion.version, backend.tag)
    for name, said in ask.indexes.lacks.get(IndexFacts.key(release, backend), {}).items():
        if not package_index:
            return refusals.refuse_index(name, said)
    return None


def remarks_of(
    release: Release, backend: Backend, considered: Considered, ask: Question
) -> tuple[Remark, ...]:
    """Return what is taken on the user's word, and what nobody knows yet, of a build that was chosen."""
    wish, catalogue = ask.wish, ask.catalogue
    remarks = []
    triton = catalogue.triton.get(ask.host.system)
    if triton and wish.compiles and backend.vendor == "nvidia":
        said = f"torch.compile for a GPU needs {triton} on this system: list it under [packages] requirements"
        remarks.append(Remark("triton-missing", said))
    for name in wish.packages:
        companion = release.companions.get(name)
        if companion is not None and companion.exists(backend.tag) is None:
            said = f"whether {name} {companion.version} is built for {backend.tag} is not known"
            remarks.append(
                Remark("companion-unknown", f"{said}; the index is asked before anything is built")
            )
    if considered.expected:
        return tuple(remarks)
    gpus = [device for device in considered.devices if isinstance(device, NvidiaDevice)]
    if wish.capability is not None and gpus and all(_is_known(gpu, ask) for gpu in gpus):
        named = ", ".join(f"{gpu.name} ({_capability(gpu, ask)})" for gpu in gpus)
        said = f"ignoring --capability {wish.capability}: that of {named} is known"
        remarks.append(Remark("capability-known", said))
    for device in considered.devices:
        if isinstance(device, AmdDevice):
            doubt = catalogue.doubts.get(backend.tag, {}).get(_gfx(device, catalogue) or "")
            remarks += [Remark("kernels-doubtful", doubt)] if doubt else []
        match backend.needs, device:
            case Cuda() as cuda, NvidiaDevice():
                if _capability(device, ask) is None and not _serves_all_driven(cuda, ask):
                    remarks.append(_note_vouched(f"{device.name} (compute capability unknown)", backend))
            case Rocm(), AmdDevice() if device.override in _targets(backend) and wish.accept_override:
                said = f"{device.name} ({device.gfx}) runs as {device.override}, which is unsupported"
                remarks.append(Remark("override-accepted", said))
            case Rocm(), AmdDevice() if _gfx(device, catalogue) is None:
                remarks.append(_note_vouched(f"{device.name} (gfx target unknown)", backend))
            case Xpu(), IntelDevice() if device.xpu is None:
                remarks.append(_note_vouched(device.name, backend))
            case _:
                pass
    return tuple(remarks)


def driver_system(host: Host) -> str:
    """Return the column of a driver table by which the host's driver is judged."""
    if host.nvidia.tegra:
        return "tegra"
    # Under WSL the driver is that of Windows.
    return "windows" if host.wsl or host.system == "windows" else "linux"


def _first(refusals: Iterable[Refusal | None]) -> Refusal | None:
    return next((refusal for refusal in refusals if refusal is not None), None)


def _refusal_of_driver(cuda: Cuda, gpus: list[NvidiaDevice], ask: Question) -> Refusal | None:
    host, catalogue = ask.host, ask.catalogue
    system, driver = driver_system(host), host.nvidia.driver
    floor = cuda.floor.by_system.get(system)
    if system == "tegra" and (floor is None or driver is None or driver < floor):
        return refusals.refuse_jetson(host, floor)
    if floor is None:
        return refusals.refuse_platform(host.platform)
    if driver is None or host.nvidia.status is Status.UNREADABLE:
        # What a driver in disorder says of itself proves nothing.
        if host.nvidia.status is not Status.FOUND or ask.wish.by_hand:
            return None
        return refusals.refuse_unknown_driver()
    if driver < floor:
        return refusals.refuse_driver(floor, driver)
    for gpu in gpus:
        capability = gpu.compute_capability or catalogue.find_capability(gpu.name)
        if capability is None:
            continue
        generation = catalogue.generation(capability)
        if generation and generation.last is not None and driver.major > generation.last.major:
            return refusals.refuse_new_driver(gpu, capability, last=generation.last, found=driver)
    return None


def _refuse_known_gpu(cuda: Cuda, gpu: NvidiaDevice, ask: Question) -> Refusal | None:
    capability, platform = _capability(gpu, ask), ask.host.platform
    if capability is None or cuda.serves(capability, platform):
        return None
    codes = cuda.codes.get(platform.rpartition("-")[2], ())
    return refusals.refuse_capability(gpu, capability, codes)


def _refusal_of_unknown_gpu(cuda: Cuda, gpu: NvidiaDevice, ask: Question) -> Refusal | None:
    known = _capability(gpu, ask) is not None
    if known or ask.wish.by_hand or _serves_all_driven(cuda, ask):
        return None
    return refusals.refuse_unknown_capability(gpu)


def _capability(gpu: NvidiaDevice, ask: Question) -> Capability | None:
    # `--capability` fills in what neither the machine nor the name of the GPU says.
    return gpu.compute_capability or ask.catalogue.find_capability(gpu.name) or ask.wish.capability


def _is_known(gpu: NvidiaDevice, ask: Question) -> bool:
    return (gpu.compute_capability or ask.catalogue.find_capability(gpu.name)) is not None


def _serves_all_driven(cuda: Cuda, ask: Question) -> bool:
    """Return whether the build serves every card that this driver can drive on this platform."""
    host, catalogue = ask.host, ask.catalogue
    driver = host.nvidia.driver
    possible = [
        item
        for item in catalogue.capabilities.get(host.platform, ())
        if driver is None or _drives(catalogue, driver, item)
    ]
    return bool(possible) and all(cuda.serves(item, host.platform) for item in possible)


def _drives(catalogue: Catalogue, driver: Version, capability: Capability) -> bool:
    generation = catalogue.generation(capability)
    return generation is None or generation.drives(driver)


def _refusal_of_gfx(targets: frozenset[str], card: AmdDevice, ask: Question) -> Refusal | None:
    gfx = _gfx(card, ask.catalogue)
    if card.override in targets and ask.wish.accept_override:
        return None
    if gfx is None:
        if ask.wish.by_hand:
            return None
        return refusals.refuse_unknown_gfx(card)
    if gfx not in targets:
        return refusals.refuse_gfx(card, gfx)
    return None


def _gfx(card: AmdDevice, catalogue: Catalogue) -> str | None:
    return card.gfx or catalogue.find_gfx(card.name)


def _targets(backend: Backend) -> frozenset[str]:
    return backend.needs.gfx if isinstance(backend.needs, Rocm) else frozenset()


def _refusal_of_xpu(part: IntelDevice, wish: Wish) -> Refusal | None:
    if part.xpu is False:
        return refusals.refuse_xpu(part)
    if part.xpu is None and not wish.by_hand:
        return refusals.refuse_unknown_xpu(part)
    return None


def _note_vouched(what: str, backend: Backend) -> Remark:
    return Remark("vouched", f"{what}: not checked, because you chose {backend.tag} by --backend")
