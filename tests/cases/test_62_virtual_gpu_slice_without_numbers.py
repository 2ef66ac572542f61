"""A slice of an H100 94 GB whose query tool leaves fields as [N/A], behind a guest driver of branch 570."""

from __future__ import annotations

import pytest
from tests.support.sysroot import Sysroot, build_of

FIELDS = "index, uuid, name, driver_version, memory.total [MiB], compute_cap, mig.mode.current"
UUID = "GPU-00000000-0000-0000-0000-000000000000"


@pytest.fixture
def guest(machine: Sysroot, name: str, capability: str) -> Sysroot:
    line = f"0, {UUID}, {name}, 570.158.01, 24576, {capability}, [N/A]"
    machine.install("nvidia-smi", f"{FIELDS}\n{line}")
    return machine


@pytest.mark.parametrize("name", ["NVIDIA H100L-2-24C"])
@pytest.mark.parametrize(("capability", "read"), [("9.0", "9.0"), ("[N/A]", None)])
def test_its_capability_is_read_or_comes_from_its_name(guest: Sysroot, read: str | None) -> None:
    (device,) = guest.probe()["nvidia"]["devices"]
    assert device["compute_capability"] == read
    planned = guest.plan()
    assert build_of(planned) == "2.14.1+cu126"
    assert planned.json["outcome"] == "fallback"
    assert [device["served"] for device in planned.json["devices"]] == [True]


@pytest.mark.parametrize(("name", "capability"), [("NVIDIA Graphics Device", "[N/A]")])
def test_a_name_that_tells_nothing_is_refused_with_the_flags_that_settle_it(guest: Sysroot) -> None:
    planned = guest.plan()
    assert planned.code == 3
    assert "capability-unknown" in {candidate["code"] for candidate in planned.json["rejected"]}
    said = guest.terminal.type("plan", "2.15", "--host", "host.json")
    assert "--capability 8.9" in said.out + said.err
    assert "--backend cu126" in said.out + said.err
    assert build_of(guest.plan("--capability", "9.0")) == "2.14.1+cu126"
    assert build_of(guest.plan("--backend", "cu126")) == "2.14.1+cu126"
