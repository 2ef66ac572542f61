"""CUDA 13 wheels behind drivers before and after the one that they need."""

from __future__ import annotations

import pytest
from tests.support.sysroot import Sysroot, build_of
from tests.support.workshop import HOSTS


@pytest.mark.parametrize(
    ("driver", "build"),
    [("550.163.01", "2.14.1+cu126"), ("579.99", "2.14.1+cu126"), ("580.00", "2.15.0+cu132")],
)
def test_drivers_are_compared_as_numbers(machine: Sysroot, driver: str, build: str) -> None:
    line = f"{driver}, NVIDIA H100 80GB HBM3, 9.0\n"
    machine.install("nvidia-smi", "driver_version, name, compute_cap\n" + line * 8)
    planned = machine.plan()
    assert build_of(planned) == build
    assert len(planned.json["devices"]) == 8
    read = machine.terminal.type("plan", "2.15", "--host", "host.json")
    assert ("driver 580 or newer allows torch 2.15" in read.out) is (build == "2.14.1+cu126")


def test_in_windows_the_floor_is_that_of_windows(machine: Sysroot) -> None:
    planned = machine.terminal.type("plan", "2.15", "--host", HOSTS / "h100-windows-566.json", "--json")
    assert build_of(planned) == "2.14.1+cu126"
