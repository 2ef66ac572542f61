"""What environment variables that hide GPUs leave of the devices that were found."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchenv.host.model import Problem
from torchenv.system.values import frozen


@frozen(kw_only=True)
class Named:
    """A device by everything a mask may call it; `parts` are the UUIDs of its MIG slices."""

    label: str
    uuid: str | None = None
    parts: tuple[str, ...] = ()


@frozen
class Masked:
    """Which devices are left, in the order of the devices, and what to tell about it."""

    visible: tuple[bool, ...]
    problem: Problem | None = None


def apply(variable: str, value: str | None, devices: Sequence[Named], *, numbered: bool) -> Masked:
    """Resolve a mask; without `numbered` the runtime counts in another order than `devices`.

    A mask that cannot be resolved, or that leaves nothing, hides nothing and is a problem.
    """
    everything = tuple(True for _ in devices)
    if value is None or not devices:
        return Masked(everything)
    setting = f"{variable}={value}"

    def leave_unresolved(code: str, message: str) -> Masked:
        return Masked(everything, Problem(code, variable, f"{message}; all GPUs are considered"))

    words = [word.strip() for word in value.split(",")]
    if not numbered and len(devices) > 1 and any(word.isdigit() for word in words):
        hint = "set CUDA_DEVICE_ORDER=PCI_BUS_ID or name GPUs by UUID"
        return leave_unresolved("mask-by-number", f"{setting} counts the fastest GPU first ({hint})")
    chosen: set[int] = set()
    for word in words:
        position = _position(word, devices)
        if position is None:
            # The runtimes stop at the first word that names no device.
            break
        chosen.add(position)
    if not chosen and re.match(r"(GPU|MIG)-", value):
        return leave_unresolved("mask-unknown", f"{setting} names no GPU that was found")
    if not chosen:
        return leave_unresolved("mask-hides-everything", f"{setting} hides every GPU")
    visible = tuple(position in chosen for position in range(len(devices)))
    if all(visible):
        return Masked(visible)
    left = ", ".join(device.label for device, seen in zip(devices, visible, strict=True) if seen)
    hidden = ", ".join(device.label for device, seen in zip(devices, visible, strict=True) if not seen)
    message = f"{setting} leaves {left} and hides {hidden}"
    return Masked(visible, Problem("devices-masked", variable, message))


def _position(word: str, devices: Sequence[Named]) -> int | None:
    if re.fullmatch(r"\d{1,4}", word):
        return int(word) if int(word) < len(devices) else None
    # Before driver 470 a slice was called MIG-GPU-<uuid of the card>/<instance>/<instance>.
    old = re.fullmatch(r"MIG-(GPU-[\w-]+)/\d+/\d+", word)
    name = (old[1] if old else word).lower()
    if not re.match(r"(gpu|mig)-\w", name):
        return None
    found = [
        position
        for position, device in enumerate(devices)
        if any(part.lower().startswith(name) for part in (device.uuid or "", *device.parts))
    ]
    return found[0] if len(found) == 1 else None
