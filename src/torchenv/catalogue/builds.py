"""What one build needs of a machine: a driver, a device that its code runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from packaging.version import Version

from torchenv.host.model import Capability, WrittenVersion
from torchenv.system.values import frozen


class KernelRule(NamedTuple):
    """Which GPUs run the code of a build, up to a CUDA version (`below`), or for all later ones.

    Code for capability X runs on devices of the same major and a minor not below, less `exclude[X]`;
    code under `only` runs on the devices listed there and on no others.
    Source: `DEVICE_REQUIREMENT` in torch/cuda/__init__.py.
    """

    below: Version | None
    exclude: Mapping[Capability, frozenset[Capability]]
    only: Mapping[Capability, frozenset[Capability]]

    def runs(self, code: Capability, device: Capability) -> bool:
        """Return whether code made for `code` runs on a device of capability `device`."""
        if code in self.only:
            return device in self.only[code]
        same = code.major == device.major and device.minor >= code.minor
        return same and device not in self.exclude.get(code, ())


class DriverFloor(NamedTuple):
    """The oldest driver that runs a CUDA major, by system; `tegra` is a system of its own here."""

    name: str
    by_system: Mapping[str, WrittenVersion]


class Generation(NamedTuple):
    """GPUs below a capability and the driver branches that drive them."""

    name: str
    below: Capability
    first: Version | None
    last: Version | None

    def drives(self, driver: Version) -> bool:
        """Return whether a driver knows this generation."""
        late = self.last is not None and driver.major > self.last.major
        early = self.first is not None and driver.major < self.first.major
        return not late and not early


@frozen(kw_only=True)
class Cuda:
    """What a CUDA build needs: a driver of its major, and a GPU among its codes (by processor)."""

    version: Version
    floor: DriverFloor
    paired: WrittenVersion | None
    codes: Mapping[str, tuple[Capability, ...]]
    rule: KernelRule

    def serves(self, device: Capability, platform: str) -> bool:
        """Return whether the build for `platform` holds code that runs on the device."""
        codes = self.codes.get(platform.rpartition("-")[2], ())
        return any(self.rule.runs(code, device) for code in codes)


@frozen(kw_only=True)
class Rocm:
    """What a ROCm build needs: a GPU among its gfx targets."""

    gfx: frozenset[str]


@frozen
class Xpu:
    """What an XPU build needs: an Intel GPU that PyTorch's documentation names."""


@frozen
class Cpu:
    """A CPU build needs no device; on macOS it is the build with MPS in it."""


Needs = Cuda | Rocm | Xpu | Cpu


@frozen(kw_only=True)
class Backend:
    """One build line of a release: its tag is the last part of its index's address."""

    tag: str
    needs: Needs
    local: str | None
    platforms: frozenset[str]
    pythons: tuple[str, ...] | None
    family: tuple[str, ...]
    certainty: str
    source: str

    @property
    def vendor(self) -> str:
        """The maker of the devices that it is for, or `cpu`."""
        match self.needs:
            case Cuda():
                return "nvidia"
            case Rocm():
                return "amd"
            case Xpu():
                return "intel"
            case Cpu():
                return "cpu"
