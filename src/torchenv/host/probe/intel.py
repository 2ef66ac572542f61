"""Intel: the PCI bus, and `xpu-smi` where the bus cannot be seen; under WSL Level Zero's driver as well."""

from __future__ import annotations

import re
from dataclasses import replace

from torchenv.host.model import Amd, Intel, IntelDevice, Nvidia, Problem, Status
from torchenv.host.probe import pci, visible
from torchenv.host.probe.sources import Look, SeenEvidence, json_object
from torchenv.system.process import Command
from torchenv.system.values import frozen

XPU_SMI = "xpu-smi discovery -j"
DXG = "/dev/dxg"

# Level Zero's driver for Intel's GPUs, where Debian's and where Red Hat's kind of system has it.
LEVEL_ZERO = ("/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1", "/usr/lib64/libze_intel_gpu.so.1")


@frozen
class Discovered:
    """A GPU as `xpu-smi` names it; `device` is four hexadecimal digits."""

    name: str
    device: str
    slot: str


def look(look: Look) -> dict[str, Command]:
    """Keep the variables; give the program to be run beside others."""
    look.variables("ZE_AFFINITY_MASK", "ZE_ENABLE_PCI_ID_DEVICE_ORDER")
    if look.sources.python["system"] == "darwin":
        return {}
    if look.sources.python["system"] == "linux" and look.mark(DXG):
        for path in LEVEL_ZERO:
            look.mark(path)
    return {XPU_SMI: Command(tuple(XPU_SMI.split()))}


def understand(
    seen: SeenEvidence, others: tuple[Nvidia, Amd], *, wsl: bool
) -> tuple[Intel, tuple[Problem, ...]]:
    """Make one answer of everything that was seen; a display device needs no driver to be seen.

    Under WSL no bus shows the GPU that Windows lends, which may be one of the `others`.
    """
    told = parse_xpu_smi(seen.read_output(XPU_SMI))
    names = {display.slot: display.name for display in told}
    on_bus = pci.displays(seen, pci.INTEL)
    seen_by_tool = tuple(pci.Display(display.slot, pci.INTEL, display.device) for display in told)
    displays = on_bus or seen_by_tool
    if not displays:
        return _without_card(seen, others, wsl=wsl)
    devices = tuple(
        _device(number, display, names.get(display.slot) or display.name)
        for number, display in enumerate(displays)
    )
    shown, masked = _mask(seen, devices)
    problems = [masked] if masked else []
    held = [card for card in on_bus if card.stand_in]
    if held:
        message = f"an Intel GPU without its driver: {', '.join(map(str, held))}"
        problems.append(Problem("driver-stand-in", "PCI", message))
    discrete = [card for card, device in zip(displays, devices, strict=True) if not device.integrated]
    if discrete and all(card in held for card in discrete):
        return Intel(status=Status.UNREADABLE, devices=shown), tuple(problems)
    return Intel(status=Status.FOUND, devices=shown), tuple(problems)


# Level Zero Initialization Error; the GPU driver is there and this user may not use it.
_DRIVER_FAILED = re.compile(r"Level Zero Initialization|zeInit|[Pp]ermission denied|driver", re.IGNORECASE)


def _without_card(
    seen: SeenEvidence, others: tuple[Nvidia, Amd], *, wsl: bool
) -> tuple[Intel, tuple[Problem, ...]]:
    said = seen.read_output(XPU_SMI)
    failed = seen.has_failed(XPU_SMI) and _DRIVER_FAILED.search(said)
    if wsl and seen.text(DXG) is not None:
        return _without_answer_in_wsl(seen, others)
    if not failed:
        return Intel(), ()
    message = f"xpu-smi says `{said.strip().splitlines()[-1]}`"
    if pci.is_bus_read(seen):
        message += "; no Intel GPU is on the bus, so this does not matter here"
        return Intel(), (Problem("xpu-smi-idle", XPU_SMI, message),)
    return Intel(status=Status.UNREADABLE), (Problem("driver-not-loaded", XPU_SMI, message),)


def _without_answer_in_wsl(
    seen: SeenEvidence, others: tuple[Nvidia, Amd]
) -> tuple[Intel, tuple[Problem, ...]]:
    nvidia, amd = others
    has_tool = XPU_SMI in seen and seen[XPU_SMI].outcome != "absent"
    has_driver = has_tool or any(seen.text(path) is not None for path in LEVEL_ZERO)
    # What Windows lends is another's where that answers, and Intel's driver is only installed beside it.
    if not has_driver or nvidia.status is not Status.ABSENT or amd.status is Status.FOUND:
        return Intel(), ()
    message = (
        f"WSL has {DXG} and Intel's driver is installed in it, and nothing names a GPU:"
        " update Intel's driver in Windows"
    )
    return Intel(status=Status.UNREADABLE), (Problem("wsl-intel", DXG, message),)


def parse_xpu_smi(text: str) -> tuple[Discovered, ...]:
    # {"device_list": [{"device_name": "…", "pci_bdf_address": "0000:29:00.0", "pci_device_id": "0xbda"}]}
    found = json_object(text).get("device_list")
    return tuple(
        Discovered(
            str(found_item.get("device_name", "Intel GPU")),
            str(found_item.get("pci_device_id", "")).removeprefix("0x").lower().zfill(4),
            str(found_item.get("pci_bdf_address", "")),
        )
        for found_item in (found if isinstance(found, list) else ())
        if isinstance(found_item, dict)
    )


def _device(number: int, display: pci.Display, name: str | None) -> IntelDevice:
    family = pci.intel_family(display.device)
    if family is None:
        # Intel's graphics part is always on the first bus; a card is behind a bridge.
        integrated = bool(re.match(r"0000:00:", display.slot))
        return IntelDevice(index=number, name=name or f"Intel GPU {display.device}", integrated=integrated)
    return IntelDevice(index=number, name=name or family.name, xpu=family.xpu, integrated=family.integrated)


def _mask(
    seen: SeenEvidence, devices: tuple[IntelDevice, ...]
) -> tuple[tuple[IntelDevice, ...], Problem | None]:
    value = seen.variable("ZE_AFFINITY_MASK")
    # 0.1 is the second tile of the first card.
    cards = None if value is None else re.sub(r"\.\d+", "", value)
    named = [visible.Named(label=f"GPU {device.index} ({device.name})") for device in devices]
    ordered = seen.variable("ZE_ENABLE_PCI_ID_DEVICE_ORDER") == "1"
    alike = len({device.name for device in devices}) == 1
    answer = visible.apply("ZE_AFFINITY_MASK", cards, named, numbered=ordered or alike)
    shown = tuple(replace(device, visible=left) for device, left in zip(devices, answer.visible, strict=True))
    return shown, answer.problem
