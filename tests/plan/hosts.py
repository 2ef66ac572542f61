"""Machines for the tests of the decision: recorded ones by their file's name, and made-up ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packaging.version import Version

from torchenv.catalogue import resources
from torchenv.host.model import (
    Amd,
    AmdDevice,
    Capability,
    Host,
    Interpreter,
    Libc,
    Nvidia,
    NvidiaDevice,
    Status,
    WrittenVersion,
)
from torchenv.plan import Plan, Question, Wish, resolve

FOLDER = Path(__file__).parents[1] / "data" / "hosts"
CATALOGUE = resources.catalogue()


def recorded(name: str) -> Host:
    """Read a recorded host."""
    path = FOLDER / f"{name}.json"
    return Host.from_json(path.read_text(encoding="utf-8"), path.name)


def planned(host: Host | str, version: str = "2.15", **wish: Any) -> Plan:
    """Plan for a recorded or made-up host, with the packaged catalogue."""
    machine = recorded(host) if isinstance(host, str) else host
    return resolve(Question(host=machine, wish=Wish(version=version, **wish), catalogue=CATALOGUE))


def linux(*pythons: str, **parts: Any) -> Host:
    """Make up a Linux machine with ordinary interpreters."""
    found = tuple(
        Interpreter(version=Version(item), path=f"/usr/bin/python{item}", machine="x86_64")
        for item in pythons or ("3.12.7",)
    )
    return Host(
        **{
            "system": "linux",
            "machine": "x86_64",
            "libc": Libc("glibc", Version("2.39")),
            "pythons": found,
            **parts,
        }
    )


def nvidia(driver: str | None, *devices: tuple[str, str | None], status: Status = Status.FOUND) -> Nvidia:
    """Make up NVIDIA GPUs as (name, compute capability)."""
    return Nvidia(
        status=status,
        driver=WrittenVersion(driver) if driver else None,
        devices=tuple(
            NvidiaDevice(index=n, name=name, compute_capability=Capability.parse(text) if text else None)
            for n, (name, text) in enumerate(devices)
        ),
    )


def amd(*devices: AmdDevice) -> Amd:
    """Make up AMD GPUs."""
    return Amd(status=Status.FOUND, devices=devices)


def choice(plan: Plan) -> str | None:
    """Return the environment's name of a plan."""
    return plan.build.name if plan.build else None


def codes(plan: Plan, torch: str | None = None) -> dict[str, str]:
    """Return the code by which each build of a release was passed over."""
    return {item.backend: item.code for item in plan.rejected if torch in {None, str(item.torch)}}


def warned(plan: Plan) -> dict[str, str]:
    """Return the warnings of a plan by their codes."""
    return {warning.code: warning.message for warning in plan.warnings}
