"""Asks the torch of an environment that exists what its devices are, in a child of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from torchenv.environment.inspect import describe
from torchenv.errors import InputError
from torchenv.host.model import (
    Capability,
    Evidence,
    Host,
    NvidiaDevice,
    Problem,
    SeenEnvironment,
    Status,
)
from torchenv.host.probe.sources import GUEST
from torchenv.host.probe.torch_messages import TorchComplaint, complaint
from torchenv.system.process import Command, Completed, Runner
from torchenv.system.values import frozen

# Seconds; importing torch from a cold disk takes long, and starting CUDA some more.
LIMIT = 60.0


@frozen(kw_only=True)
class TorchDevice:
    """A device as torch names it: a capability where it was built for CUDA, a gfx name for ROCm."""

    index: int
    name: str
    compute_capability: Capability | None = None
    gfx: str | None = None


def ask_torch(host: Host, run: Runner) -> Host:
    """Fill in the capabilities that are unknown, from the torch of an environment that is there.

    The active one is asked first. Its answer is kept as evidence.
    """
    for environment in sorted(host.environments, key=lambda environment: not environment.active):
        python = _interpreter(environment)
        if python is None:
            continue
        answer = run(question(str(python)), timeout=LIMIT)
        says = parse(answer)
        if says.complaint is not None and host.nvidia.status is not Status.ABSENT:
            problem = Problem(f"torch-{says.complaint.code}", environment.path, _describe(says.complaint))
            host = replace(host, problems=(*host.problems, problem))
        devices = fill_capabilities(host.nvidia.devices, says)
        if devices != host.nvidia.devices:
            evidence = Evidence(
                f"torch in {environment.path}", "read", answer.out.strip().rpartition("\n")[2]
            )
            nvidia = replace(host.nvidia, devices=devices)
            return replace(host, nvidia=nvidia, evidence=(*host.evidence, evidence))
    return host


def _describe(complaint: TorchComplaint) -> str:
    match complaint.code:
        case "driver-missing":
            return "torch finds no NVIDIA driver: install it, or start the container with its GPUs"
        case "driver-too-old":
            return f"torch finds the NVIDIA driver too old (it knows CUDA {complaint.cuda})"
        case _:
            return f"torch has no kernels for a GPU of compute capability {complaint.capability or 'unknown'}"


def _interpreter(environment: SeenEnvironment) -> Path | None:
    if environment.torch is None:
        return None
    try:
        return describe(Path(environment.path)).interpreter
    except InputError:
        return None


def question(python: str) -> Command:
    """Return the command that asks; it writes no byte code into the environment."""
    argv = (python, "-I", "-B", str(GUEST / "ask_torch_devices.py"))
    return Command(argv, env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})


@frozen
class TorchSays:
    """The devices that torch sees, and what keeps it from using one."""

    devices: tuple[TorchDevice, ...] = ()
    complaint: TorchComplaint | None = None


def parse(answer: Completed) -> TorchSays:
    """Read the answer; a torch that fails, or sees no device, names none."""
    return TorchSays(_devices(answer), complaint(answer.err))


def fill_capabilities(devices: tuple[NvidiaDevice, ...], says: TorchSays) -> tuple[NvidiaDevice, ...]:
    """Fill in capabilities that are unknown, for devices that torch calls by the same name."""
    known = {device.name: device.compute_capability for device in says.devices}
    return tuple(
        replace(device, compute_capability=known.get(device.name))
        if device.compute_capability is None
        else device
        for device in devices
    )


def _devices(answer: Completed) -> tuple[TorchDevice, ...]:
    # {"torch": "2.14.1", "devices": [{"index": 0, "name": "…", "compute_capability": "8.9", "gfx": null}]}
    last = answer.out.strip().rpartition("\n")[2]
    try:
        devices = json.loads(last)["devices"] if answer.code == 0 else ()
        return tuple(
            TorchDevice(
                index=device["index"],
                name=device["name"],
                compute_capability=Capability.parse(device["compute_capability"] or ""),
                gfx=device["gfx"],
            )
            for device in devices
        )
    except (ValueError, KeyError, TypeError):
        return ()
