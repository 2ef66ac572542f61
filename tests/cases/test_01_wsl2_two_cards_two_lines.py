"""WSL2 with two equal cards: no kernel file of a driver, and a tool that prints a line for each."""

from __future__ import annotations

import platform

import pytest
from tests.support.machine import sample
from tests.support.sysroot import Sysroot, build_of

CARD = "581.42, NVIDIA GeForce RTX 4070 Ti, 8.9"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("header", [("driver_version, name, compute_cap",), ()], ids=["header", "noheader"])
def test_two_lines_are_two_cards_behind_one_driver(
    machine: Sysroot, end: str, header: tuple[str, ...]
) -> None:
    machine.write({"/proc/version": sample("proc-version-wsl2.txt"), "/dev/dxg": ""})
    machine.install("nvidia-smi", end.join([*header, CARD, CARD, ""]))
    host = machine.probe()
    assert (host["wsl"], host["system"], host["machine"]) == (True, "linux", platform.machine().lower())
    assert host["nvidia"]["driver"] == "581.42"
    assert [card["compute_capability"] for card in host["nvidia"]["devices"]] == ["8.9", "8.9"]

    planned = machine.plan()
    assert build_of(planned) == "2.15.0+cu132"
    assert [card["served"] for card in planned.json["devices"]] == [True, True]
    # The newest CUDA is preferred only with the driver that was made for it, and taken by name with this one.
    assert build_of(machine.plan("--prefer", "newest")) == "2.15.0+cu132"
    assert build_of(machine.plan("--backend", "cu134")) == "2.15.0+cu134"
    assert "apt install" not in planned.out + planned.err
