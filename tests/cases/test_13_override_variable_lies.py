"""A variable makes ROCm take the chip for another; the kernel knows the real one."""

from __future__ import annotations

from tests.support.machine import kfd
from tests.support.sysroot import Sysroot, build_of


def test_the_plan_is_for_the_real_chip_and_names_both_and_the_variable(machine: Sysroot) -> None:
    machine.write(kfd(0, 110501))
    planned = machine.plan(HSA_OVERRIDE_GFX_VERSION="9.0.0")
    assert build_of(planned) == "2.15.0+rocm7.14"
    read = machine.terminal.type("plan", "2.15", "--host", "host.json")
    for value in ("HSA_OVERRIDE_GFX_VERSION=9.0.0", "gfx900", "gfx1151"):
        assert value in read.out + read.err


def test_a_chip_that_only_the_variable_makes_served_stops_until_that_is_accepted(machine: Sysroot) -> None:
    machine.write(kfd(0, 110503))
    planned = machine.plan(HSA_OVERRIDE_GFX_VERSION="11.0.0")
    assert planned.code == 3
    read = machine.terminal.type("plan", "2.15", "--host", "host.json")
    assert "gfx1153" in read.out + read.err
    assert "accept gfx1100, which is unsupported, with --accept-override" in read.out

    accepted = machine.plan("--accept-override", HSA_OVERRIDE_GFX_VERSION="11.0.0")
    assert build_of(accepted) == "2.15.0+rocm7.14"
    (warning,) = [line for line in accepted.json["warnings"] if line["code"] == "override-accepted"]
    assert warning["message"] == "AMD GPU gfx1153 (gfx1153) runs as gfx1100, which is unsupported"
