"""The GPUs on the PCI bus: what is in the machine whether or not a driver drives it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from torchenv.host.model import Evidence
from torchenv.host.probe.sources import Look, SeenEvidence, child
from torchenv.system.documents import Table
from torchenv.system.process import Command
from torchenv.system.values import frozen

NVIDIA, AMD, INTEL = "10de", "1002", "8086"

_DEVICES = "/sys/bus/pci/devices"
_DISPLAYS = f"{_DEVICES} (displays)"
_WINDOWS = "EnumDisplayDevices"
_FRAMEBUFFER = "/sys/bus/platform/drivers/simple-framebuffer"

# Display controllers, co-processors and processing accelerators: GPUs for servers are often of the last two.
_CLASSES = ("0x03", "0x0b40", "0x12")

# Kernel drivers that are bound to a GPU and cannot compute on it.
_STAND_INS = {
    "nouveau": "nouveau, which cannot run CUDA",
    "vfio-pci": "vfio-pci, which lends it to a virtual machine",
    "simple-framebuffer": "simple-framebuffer, which only shows a picture",
}

_IDS = Path(__file__).parents[2] / "catalogue" / "data" / "pci-ids.toml"


@frozen
class Display:
    """A GPU on the bus; vendor and device are four hexadecimal digits, `driver` is the one bound to it."""

    slot: str
    vendor: str
    device: str
    name: str | None = None
    driver: str | None = None

    @property
    def stand_in(self) -> str | None:
        """The driver bound in place of the vendor's own, and what that one does; None where none is."""
        return _STAND_INS.get(self.driver or "")

    def __str__(self) -> str:
        bound = f", bound to {self.stand_in}" if self.stand_in else ""
        return f"{self.vendor}:{self.device}{bound}"


@frozen
class IntelFamily:
    """A family of Intel GPUs; `xpu` is None where PyTorch's page does not name it."""

    name: str
    xpu: bool | None
    integrated: bool


def look(look: Look) -> dict[str, Command]:
    """Read the bus; give the program that tells it where there is no `/sys`."""
    if look.sources.python["system"] == "windows":
        return {_WINDOWS: child("list_displays.py")}
    lines = []
    slots = look.within(_DEVICES)
    look.keep(Evidence(_DEVICES, "read" if slots else "absent"))
    shows_picture = any(name.startswith("simple-framebuffer") for name in look.within(_FRAMEBUFFER))
    for slot in slots:
        place = look.sources.path(f"{_DEVICES}/{slot}")
        try:
            kind = (place / "class").read_text().strip()
            if kind.startswith(_CLASSES):
                vendor, device = ((place / name).read_text().strip() for name in ("vendor", "device"))
                driver = _find_driver(place) or ("simple-framebuffer" if shows_picture else None)
                bound = f" driver={driver}" if driver else ""
                lines.append(f"{slot} class={kind} vendor={vendor} device={device}{bound}")
        except OSError:
            continue
    look.keep(Evidence(_DISPLAYS, "read", "\n".join(lines)))
    return {}


def is_bus_read(seen: SeenEvidence) -> bool:
    """Return whether the bus could be looked at, so that a card that is not on it is not there."""
    return seen.text(_DEVICES) is not None or seen.text(_WINDOWS) is not None


def displays(seen: SeenEvidence, vendor: str) -> tuple[Display, ...]:
    """Return the GPUs of one vendor, in the order of the bus."""
    found = parse_displays(seen.read_output(_DISPLAYS)) + parse_windows(seen.read_output(_WINDOWS))
    return tuple(display for display in found if display.vendor == vendor)


def parse_displays(text: str) -> tuple[Display, ...]:
    # 0000:03:00.0 class=0x030000 vendor=0x8086 device=0xe20b driver=xe
    found = re.findall(
        r"^(\S+) class=(0x\w+) vendor=0x(\w+) device=0x(\w+)(?: driver=(\S+))?", text, re.MULTILINE
    )
    return tuple(
        Display(slot, vendor, device.zfill(4), driver=driver or None)
        for slot, kind, vendor, device, driver in found
        if kind.startswith(_CLASSES) and _is_gpu(kind, vendor, device.zfill(4))
    )


def parse_windows(text: str) -> tuple[Display, ...]:
    # Intel(R) Arc(TM) A770 Graphics|PCI\VEN_8086&DEV_56A0&SUBSYS_10208086&REV_08
    found = re.findall(r"^(.*)\|(PCI\\VEN_(\w{4})&DEV_(\w{4})\S*)", text, re.MULTILINE)
    # A card is listed once for each of its outputs.
    cards = dict.fromkeys(
        (slot, vendor.lower(), device.lower(), name) for name, slot, vendor, device in found
    )
    return tuple(Display(*card) for card in cards)


def intel_family(device: str) -> IntelFamily | None:
    """Look up an Intel device number such as `e20b`."""
    for table in _ids().tables("intel"):
        if device in table.strings("ids") or device.startswith(table.strings("prefixes") or ("-",)):
            return IntelFamily(
                table.get("family", str), table.maybe("xpu", bool), table.get("integrated", bool)
            )
    return None


def find_amd_integrated(device: str) -> str | None:
    """Return the gfx name of an AMD processor's graphics part by its device number such as `164e`."""
    found = (table for table in _ids().tables("amd") if device in table.strings("ids"))
    return next((table.get("gfx", str) for table in found), None)


def list_amd_integrated_gfx() -> frozenset[str]:
    """Return the gfx names that only processors' graphics parts have."""
    return frozenset(table.get("gfx", str) for table in _ids().tables("amd"))


@frozen
class TegraChip:
    """The system on a chip of a Jetson board, by the name that the device tree gives it."""

    name: str
    board: str
    capability: str


def tegra_chip(compatible: str) -> TegraChip | None:
    """Look up the chip that the device tree of a Jetson names."""
    # nvidia,p3737-0000+p3701-0000\0nvidia,p3701-0000\0nvidia,tegra234
    names = set(re.findall(r"nvidia,(tegra\w+)", compatible))
    found = (table for table in _ids().tables("tegra") if table.get("chip", str) in names)
    return next(
        (TegraChip(*(table.get(key, str) for key in ("chip", "board", "capability"))) for table in found),
        None,
    )


def find_jetpack(l4t: str) -> str | None:
    """Return the JetPack of a release of Jetson Linux (L4T), by its major version where no more is known."""
    major = l4t.partition(".")[0]
    table = next((table for table in _ids().tables("jetpack") if major in table.strings("l4t")), None)
    return table.table("releases").maybe(l4t, str) or table.get("version", str) if table else None


def _find_driver(place: Path) -> str | None:
    try:
        return (place / "driver").readlink().name
    except OSError:
        return None


def _is_gpu(kind: str, vendor: str, device: str) -> bool:
    # Intel's NPUs and QuickAssist cards are accelerators too, and compute for no PyTorch.
    return vendor != INTEL or kind.startswith("0x03") or intel_family(device) is not None


@cache
def _ids() -> Table:
    return Table.from_toml(_IDS.read_text(encoding="utf-8"), _IDS.name)
