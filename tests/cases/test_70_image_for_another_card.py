"""An image is built on a GPU server whose card shows through, and is for a machine with another card."""

from __future__ import annotations

import pytest
from tests.support.machine import pci
from tests.support.sysroot import Sysroot, build_of

DRIVER = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed Aug 27 17:01:07 UTC 2025\n"
    "GCC version:  gcc version 13.3.0\n"
)
CARDS = {"0000:3b:00.0": "Tesla V100-PCIE-32GB", "0000:d8:00.0": "NVIDIA Graphics Device"}


@pytest.fixture
def server(machine: Sysroot, slots: tuple[str, ...]) -> Sysroot:
    """No device, no library, no tool: /proc and the bus alone."""
    machine.write({"/proc/driver/nvidia/version": DRIVER})
    for slot in slots:
        model = f"Model: \t\t {CARDS[slot]}\nIRQ:   \t\t 170\nBus Location: \t {slot}\n"
        machine.write({f"/proc/driver/nvidia/gpus/{slot}/information": model, **pci(f"{slot} 10de:1db6")})
    return machine


@pytest.mark.parametrize("slots", [("0000:3b:00.0",)])
def test_for_another_machine_the_servers_card_is_mentioned_and_decides_nothing(server: Sysroot) -> None:
    # What the server itself would get.
    assert build_of(server.plan()) == "2.14.1+cu126"

    image = ("--devices", "none", "--backend", "cu132", "--capability", "8.9")
    planned = server.plan(*image)
    assert build_of(planned) == "2.15.0+cu132"
    (card,) = planned.json["devices"]
    assert card["served"] is False
    assert "unproven" in {warning["code"] for warning in planned.json["warnings"]}
    read = server.terminal.type("plan", "2.15", "--host", "host.json", *image)
    assert "Tesla V100-PCIE-32GB: not supported" in read.out
    assert "note: planned for the NVIDIA GPU of another machine: the environment is untested" in read.out
    assert "No GPU found" not in read.out


@pytest.mark.parametrize("slots", [tuple(CARDS)])
def test_a_capability_by_hand_is_that_of_the_unknown_card_alone(server: Sysroot) -> None:
    planned = server.plan("--capability", "8.9")
    assert build_of(planned) == "2.14.1+cu126"
    assert [device["served"] for device in planned.json["devices"]] == [True, True]
    (refused,) = [
        line for line in planned.json["rejected"] if (line["torch"], line["backend"]) == ("2.15.0", "cu132")
    ]
    assert refused["code"] == "capability-unsupported"
    assert "Tesla V100-PCIE-32GB (compute capability 7.0)" in refused["message"]
