"""The library was updated and the kernel module was not, and the query tool complains on standard output."""

from __future__ import annotations

import pytest
from tests.support.machine import pci
from tests.support.sysroot import Sysroot, build_of

MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.64.03  Tue Jun 10 17:42:07 UTC 2025\n"
COMPLAINT = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n"


@pytest.mark.parametrize("code", [18, 0])
def test_a_driver_updated_by_half_stops_the_plan_and_says_what_cures_it(machine: Sysroot, code: int) -> None:
    machine.write({"/proc/driver/nvidia/version": MODULE, **pci("0000:01:00.0 10de:2684")})
    machine.install("nvidia-smi", COMPLAINT, code=code)
    host = machine.probe()
    assert host["nvidia"]["status"] == "unreadable"
    assert [problem["code"] for problem in host["problems"]] == ["driver-library-mismatch"]

    planned = machine.plan()
    assert planned.code == 3
    assert planned.json["torch"] is None
    read = machine.terminal.type("plan", "2.15", "--host", "host.json")
    for value in ("575.64.03", "580.126", "reboot"):
        assert value in read.out + read.err
    assert machine.terminal.built() == []

    # By hand both ways stay open, and the plan says that they were taken by hand.
    by_hand = machine.plan("--backend", "cu132")
    assert build_of(by_hand) == "2.15.0+cu132"
    assert by_hand.json["warnings"] != []
    assert build_of(machine.plan("--backend", "cpu", "--accept-cpu")) == "2.15.0+cpu"
