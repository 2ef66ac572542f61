"""Which of a host's devices the choice turns on, and which are only mentioned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torchenv.catalogue.builds import Rocm, Xpu
from torchenv.catalogue.releases import Catalogue
from torchenv.errors import InputError
from torchenv.host.model import AmdDevice, Host, IntelDevice, NvidiaDevice, Status
from torchenv.plan.refusals import MAKERS, name_flags
from torchenv.plan.values import Refusal, Remark, Wish
from torchenv.system.values import frozen

Device = NvidiaDevice | AmdDevice | IntelDevice


@frozen(kw_only=True)
class Considered:
    """What the choice turns on.

    `vendor` is the maker whose builds are looked at, `cpu` where there is no device, `apple` on a Mac.
    `blocked` says that nothing may be chosen, whatever the builds are; `expected` that the devices are those
    of a machine that is not at hand.
    """

    vendor: str
    devices: tuple[Device, ...] = ()
    blocked: Refusal | None = None
    hint: str | None = None
    expected: bool = False
    remarks: tuple[Remark, ...] = ()


def consider(host: Host, wish: Wish, catalogue: Catalogue) -> Considered:
    """Apply masks, `--devices`, `--backend` and the rules for integrated graphics.

    Raises `InputError` where `--devices` names none of the host's devices.
    """
    if host.system == "darwin":
        return Considered(vendor="apple")
    wanted = _vendors_of(wish, catalogue)
    if wish.by_hand and wanted == {"cpu"}:
        return Considered(
            vendor="cpu", remarks=_note_unused(host, frozenset(), "cpu was chosen by --backend")
        )
    picked = {vendor: _pick(vendor, host, wish, catalogue) for vendor in MAKERS}
    _refuse_empty_selection(host, wish, picked)
    remarks = _aside(host, picked)
    unreadable = {vendor for vendor in MAKERS if _unreadable(vendor, host)}
    present = {vendor for vendor in MAKERS if picked[vendor] or vendor in unreadable}
    if (wish.by_hand or len(present) > 1) and present & wanted:
        # A backend by name settles which maker's devices are used.
        by = "by --backend" if wish.by_hand else "in the profile"
        remarks += _note_unused(host, frozenset(wanted), f"the backend was chosen {by}")
        present &= wanted
    if not present:
        return _no_device(wish, wanted, catalogue.matching(wish.version)[0].defaults, remarks)
    if len(present) > 1:
        defaults = catalogue.matching(wish.version)[0].defaults
        return _conflict({item: picked[item] for item in MAKERS if item in present}, defaults, remarks)
    (vendor,) = present
    if vendor in unreadable:
        vouched = wish.by_hand and vendor in wanted
        default = catalogue.matching(wish.version)[0].defaults.get(vendor)
        return _block_unreadable(vendor, picked[vendor], host, remarks, vouched=vouched, default=default)
    return Considered(vendor=vendor, devices=picked[vendor], remarks=remarks)


def all_devices(host: Host) -> Iterable[tuple[str, Device]]:
    """Return every device of the host with its maker, in the order of the host document."""
    for vendor in MAKERS:
        for device in devices_of(vendor, host):
            yield vendor, device


def devices_of(vendor: str, host: Host) -> tuple[Device, ...]:
    """Return the devices of one maker."""
    return host.accelerators(vendor).devices


def is_integrated(device: Device) -> bool:
    """Return whether it is a part of the processor."""
    return not isinstance(device, NvidiaDevice) and device.integrated


def _vendors_of(wish: Wish, catalogue: Catalogue) -> frozenset[str]:
    builds = (backend for release in catalogue.releases for backend in release.backends)
    return frozenset(build.vendor for build in builds if build.tag in wish.backends)


def _unreadable(vendor: str, host: Host) -> bool:
    # A driver that answers and names no device was not read either.
    devices = devices_of(vendor, host)
    status = host.accelerators(vendor).status
    found_nothing = status is Status.FOUND and not devices
    only_integrated = bool(devices) and all(is_integrated(device) for device in devices)
    return found_nothing or (status is Status.UNREADABLE and not only_integrated)


def _pick(vendor: str, host: Host, wish: Wish, catalogue: Catalogue) -> tuple[Device, ...]:
    devices = devices_of(vendor, host)
    chosen = [device for device in devices if device.visible]
    if wish.devices is not None:
        chosen = [item for item in chosen if item.index in wish.devices]
    by_backend = wish.by_hand and vendor in _vendors_of(wish, catalogue)
    masked = any(not device.visible for device in devices)
    named = wish.devices is not None and not _has_discrete_pick(host, wish)
    return tuple(
        item
        for item in chosen
        if not is_integrated(item)
        or by_backend
        or masked
        or named
        or _overridden(item)
        or (not _has_discrete_pick(host, wish) and _is_served_by_any(item, host, catalogue))
    )


def _has_discrete_pick(host: Host, wish: Wish) -> bool:
    return any(
        not is_integrated(device)
        and device.visible
        and (wish.devices is None or device.index in wish.devices)
        for _, device in all_devices(host)
    )


def _overridden(device: Device) -> bool:
    # Who sets an override means to use this part.
    return isinstance(device, AmdDevice) and device.override is not None


def _is_served_by_any(device: Device, host: Host, catalogue: Catalogue) -> bool:
    for release in catalogue.releases:
        for backend in release.backends:
            if host.platform not in backend.platforms:
                continue
            match backend.needs:
                case Rocm(gfx=targets) if isinstance(device, AmdDevice) and device.gfx in targets:
                    return True
                case Xpu() if isinstance(device, IntelDevice) and device.xpu:
                    return True
                case _:
                    pass
    return False


def _refuse_empty_selection(host: Host, wish: Wish, picked: dict[str, tuple[Device, ...]]) -> None:
    if wish.devices is None or any(picked.values()):
        return
    numbers = ", ".join(map(str, wish.devices))
    has = ", ".join(f"{device.index} ({device.name})" for _, device in all_devices(host) if device.visible)
    raise InputError(
        f"--devices {numbers} names no device of this host",
        hint=f"name some of {has}" if has else "leave it out: this host has no device that was seen",
    )


def _aside(host: Host, picked: dict[str, tuple[Device, ...]]) -> tuple[Remark, ...]:
    remarks = []
    for vendor, device in all_devices(host):
        if not device.visible or device in picked[vendor] or not is_integrated(device):
            continue
        what = f"{device.name} (integrated, {_target(device)})"
        beside = any(
            not is_integrated(item) for item in (*picked["nvidia"], *picked["amd"], *picked["intel"])
        )
        why = "is not used beside a discrete GPU" if beside else "is supported by no release of PyTorch"
        remarks.append(Remark("integrated-device", f"{what} {why}"))
    return tuple(remarks)


def _target(device: Device) -> str:
    match device:
        case AmdDevice():
            return device.gfx or "gfx unknown"
        case NvidiaDevice():
            return str(device.compute_capability or "capability unknown")
        case IntelDevice():
            return "Intel graphics"


def _note_unused(host: Host, used: frozenset[str], why: str) -> tuple[Remark, ...]:
    return tuple(
        Remark("device-unused", f"{device.name} will not be used: {why}")
        for vendor, device in all_devices(host)
        if vendor not in used and device.visible
    )


def _no_device(
    wish: Wish, wanted: frozenset[str], defaults: Mapping[str, str], remarks: tuple[Remark, ...]
) -> Considered:
    accelerated = wanted - {"cpu"}
    if wish.capability is not None and not accelerated:
        accelerated = frozenset({"nvidia"})
    if not accelerated:
        said = "No GPU found, so this is a CPU plan. For a GPU machine: --backend"
        tag = defaults.get("nvidia")
        remark = Remark("no-device", f"{said} {tag} (and --capability)" if tag else said)
        return Considered(vendor="cpu", remarks=(*remarks, remark))
    vendor = min(accelerated, key=list(MAKERS).index)
    # Not that none was found: a server on which an image is built may have cards of its own.
    unproven = "the environment is untested until run on one"
    said = f"planned for the {MAKERS[vendor]} GPU of another machine: {unproven}"
    devices: tuple[Device, ...] = ()
    if vendor == "nvidia" and wish.capability is not None:
        devices = (NvidiaDevice(index=0, name="a GPU", compute_capability=wish.capability),)
    remark = Remark("unproven", said)
    return Considered(vendor=vendor, devices=devices, expected=True, remarks=(*remarks, remark))


def _conflict(
    present: Mapping[str, tuple[Device, ...]], defaults: Mapping[str, str], remarks: tuple[Remark, ...]
) -> Considered:
    names = {vendor: ", ".join(device.name for device in devices) for vendor, devices in present.items()}
    parts = [
        f"{MAKERS[vendor]} ({named or 'a device that could not be read'})" for vendor, named in names.items()
    ]
    choices = [f"--backend {defaults[vendor]}" for vendor in present if vendor in defaults]
    message = f"this host has devices of {' and '.join(parts)}, and no build supports both"
    return Considered(
        vendor="cpu",
        blocked=Refusal("devices-conflict", message),
        hint=f"choose with {' or '.join(choices)}" if choices else None,
        remarks=remarks,
    )


def _block_unreadable(
    vendor: str,
    devices: tuple[Device, ...],
    host: Host,
    remarks: tuple[Remark, ...],
    *,
    vouched: bool,
    default: str | None,
) -> Considered:
    own = [problem for problem in host.problems if problem.vendor == vendor] or host.problems
    why = "; ".join(problem.message for problem in own) or "its driver cannot be asked"
    message = f"{MAKERS[vendor]} hardware was seen and cannot be read: {why}"
    if vouched:
        said = f"{message}; you chose the backend, so the environment is untested until run on a GPU"
        remark = Remark("vouched", said)
        return Considered(vendor=vendor, devices=devices, expected=True, remarks=(*remarks, remark))
    return Considered(
        vendor=vendor,
        blocked=Refusal("driver-unknown", message),
        hint=f"fix the driver, then run again; {_name_ways_on(default)}",
        remarks=remarks,
    )


def _name_ways_on(default: str | None) -> str:
    # What an NVIDIA GPU can do helps little where its driver is not known either.
    return f"or {name_flags('', default)}; or go on without it: --accept-cpu"
