"""Which devices an environment was planned for, and so must compute on."""

from __future__ import annotations

import os

from torchenv.host.model import Host, IntelDevice
from torchenv.plan.devices import Device, devices_of, is_integrated
from torchenv.system.documents import Table
from torchenv.system.values import frozen
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store

# cu132, rocm7.14, xpu: the label of a build says whose devices it is for.
_VENDORS = {"cu": "nvidia", "rocm": "amd", "xpu": "intel"}


@frozen(kw_only=True)
class Expected:
    """The devices of which one at least must compute; `needed` also where none is known by name."""

    needed: bool
    names: tuple[str, ...] = ()


def read_expected_devices(environment: Environment, store: Store, host: Host) -> Expected:
    """Read what was planned; for an environment that torchenv did not plan, take what the host has."""
    path = store.plan_path(environment.number)
    if not os.path.isfile(path):
        vendor = _vendor(environment.backend)
        names = tuple(item.name for item in devices_of(vendor, host) if _counts(item)) if vendor else ()
        return Expected(needed=bool(names), names=names)
    plan = Table.from_json(path.read_text(encoding="utf-8"), str(path))
    names = tuple(table.get("name", str) for table in plan.tables("devices") if table.get("served", bool))
    return Expected(needed=bool(names) or plan.get("unproven", bool, default=False), names=names)


def _vendor(backend: str | None) -> str | None:
    known = (vendor for label, vendor in _VENDORS.items() if backend and backend.startswith(label))
    return next(known, None)


def _counts(device: Device) -> bool:
    if isinstance(device, IntelDevice) and not device.xpu:
        return False
    return device.visible and not is_integrated(device)
