"""Which devices an environment was planned for, and so must compute on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchenv.actions.inside import visibility
from torchenv.host import Host, IntelDevice
from torchenv.plan.devices import Device, devices_of, is_integrated
from torchenv.plan.values import PlannedDevice
from torchenv.record import Environment
from torchenv.store import Store
from torchenv.tables import Table

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"

# What a scheduler or a person sets to show only some devices.
_MASKS = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})

# cu132, rocm7.14, xpu: the label of a build says whose devices it is for.
_VENDORS = {"cu": "nvidia", "rocm": "amd", "xpu": "intel"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """The devices of which one at least must compute; `needed` also where none is known by name.

    `variables` show torch only the planned devices, and `without` names those that would lie to it.
    """

    needed: bool = False
    names: tuple[str, ...] = ()
    variables: Mapping[str, str]
    without: tuple[str, ...] = ()


def expected_devices(
    environment: Environment, store: Store, host: Host, environ: Mapping[str, str]
) -> Expected:
    """Read what was planned; for an environment that torchenv did not plan, take what the host has.

    A mask that is set already stays as it is: a scheduler knows better which devices are free.
    """
    vendor = _vendor(environment.backend)
    path = store.plan_path(environment.number)
    if not path.is_file():
        names = tuple(each.name for each in devices_of(vendor, host) if _counts(each)) if vendor else ()
        return Expected(needed=bool(names), names=names, variables={})
    plan = Table.from_json(path.read_text(encoding="utf-8"), str(path))
    devices = [
        PlannedDevice(
            each.get("vendor", str), each.get("index", int), each.get("name", str), each.get("served", bool)
        )
        for each in plan.tables("devices")
    ]
    names = tuple(each.name for each in devices if each.served)
    accepted = "override-accepted" in [each.get("code", str) for each in plan.tables("warnings")]
    return Expected(
        needed=bool(names) or plan.get("unproven", bool, default=False),
        names=names,
        variables=visibility(vendor, devices) if vendor and not _MASKS & environ.keys() else {},
        without=(OVERRIDE,) if vendor == "amd" and not accepted else (),
    )


def _vendor(backend: str | None) -> str | None:
    known = (vendor for label, vendor in _VENDORS.items() if backend and backend.startswith(label))
    return next(known, None)


def _counts(device: Device) -> bool:
    if isinstance(device, IntelDevice) and not device.xpu:
        return False
    return device.visible and not is_integrated(device)
