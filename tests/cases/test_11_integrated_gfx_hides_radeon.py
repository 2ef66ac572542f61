"""A small graphics part in the processor is listed before the card that torch can use."""

from __future__ import annotations

import pytest
from tests.support.machine import kfd
from tests.support.sysroot import Sysroot, build_of


@pytest.mark.parametrize("targets", [(100306, 120000), (120000, 100306)])
def test_the_card_is_taken_and_the_part_is_named_as_left_out(
    machine: Sysroot, targets: tuple[int, int]
) -> None:
    machine.write(kfd(0, *targets))
    machine.install("rocm_agent_enumerator", "gfx000\ngfx1036\ngfx1200")
    gfx = [device["gfx"] for device in machine.probe()["amd"]["devices"]]
    assert sorted(gfx) == ["gfx1036", "gfx1200"]
    planned = machine.plan()
    assert build_of(planned) == "2.15.0+rocm7.14"
    assert [device["served"] for device in planned.json["devices"]] == [name == "gfx1200" for name in gfx]
    read = machine.terminal.type("plan", "2.15", "--host", "host.json")
    assert "gfx1036" in read.out + read.err


def test_a_mask_of_the_users_own_is_obeyed_and_named_where_it_stops_the_plan(machine: Sysroot) -> None:
    machine.write(kfd(0, 100306, 120000))
    planned = machine.plan(HIP_VISIBLE_DEVICES="0")
    assert planned.code == 3
    read = machine.terminal.type("plan", "2.15", "--host", "host.json")
    assert "HIP_VISIBLE_DEVICES=0" in read.out + read.err
    assert "gfx1036" in read.out + read.err


@pytest.mark.parametrize(("target", "build"), [(100306, "2.15.0+cpu"), (110501, "2.15.0+rocm7.14")])
def test_a_part_of_the_processor_alone_counts_where_a_release_serves_it(
    machine: Sysroot, target: int, build: str
) -> None:
    machine.write(kfd(0, target))
    assert build_of(machine.plan()) == build
