"""The display devices on the PCI bus: what is in the machine whether or not a driver drives it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torchenv.host.model import Evidence
from torchenv.host.probe.sources import Look, SeenEvidence, child
from torchenv.system.documents import Table
from torchenv.system.process import Command

NVIDIA, AMD, INTEL = "10de", "1002", "8086"

_DEVICES = "/sys/bus/pci/devices"
_DISPLAYS = f"{_DEVICES} (displays)"
_WINDOWS = "EnumDisplayDevices"

_IDS = Path(__file__).parents[2] / "catalogue" / "data" / "pci-ids.toml"


@dataclass(frozen=True, slots=True)
class Display:
    """A PCI device of class 03; vendor and device are four hexadecimal digits."""

    slot: str
    vendor: str
    device: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
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
    for slot in slots:
        place = look.sources.path(f"{_DEVICES}/{slot}")
        try:
            kind = (place / "class").read_text().strip()
            if kind.startswith("0x03"):
                vendor, device = ((place / name).read_text().strip() for name in ("vendor", "device"))
                lines.append(f"{slot} class={kind} vendor={vendor} device={device}")
        except OSError:
            continue
    look.keep(Evidence(_DISPLAYS, "read", "\n".join(lines)))
    return {}


def displays(seen: SeenEvidence, vendor: str) -> tuple[Display, ...]:
    """Return the display devices of one vendor, in the order of the bus."""
    found = parse_displays(seen.read_output(_DISPLAYS)) + parse_windows(seen.read_output(_WINDOWS))
    return tuple(each for each in found if each.vendor == vendor)


def parse_displays(text: str) -> tuple[Display, ...]:
    # 0000:03:00.0 class=0x030000 vendor=0x8086 device=0xe20b
    found = re.findall(r"^(\S+) class=0x03\w* vendor=0x(\w+) device=0x(\w+)", text, re.MULTILINE)
    return tuple(Display(slot, vendor, device.zfill(4)) for slot, vendor, device in found)


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
    tables = _ids().tables("intel")
    for table in tables:
        if device in table.strings("ids") or device.startswith(table.strings("prefixes") or ("-",)):
            return IntelFamily(
                table.get("family", str), table.maybe("xpu", bool), table.get("integrated", bool)
            )
    return None


def find_amd_integrated(device: str) -> str | None:
    """Return the gfx name of an AMD processor's graphics part by its device number such as `164e`."""
    found = (each for each in _ids().tables("amd") if device in each.strings("ids"))
    return next((each.get("gfx", str) for each in found), None)


def list_amd_integrated_gfx() -> frozenset[str]:
    """Return the gfx names that only processors' graphics parts have."""
    return frozenset(each.get("gfx", str) for each in _ids().tables("amd"))


@cache
def _ids() -> Table:
    return Table.from_toml(_IDS.read_text(encoding="utf-8"), _IDS.name)
