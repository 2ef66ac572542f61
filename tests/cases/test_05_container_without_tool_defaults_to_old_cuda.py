"""Where nothing tells of a card, an old build is never the answer: the CPU is, or what a flag names."""

from __future__ import annotations

from tests.support.sysroot import Sysroot, build_of
from tests.support.workshop import HOSTS


def test_a_card_read_without_the_tool_gets_the_build_that_has_its_kernels(machine: Sysroot) -> None:
    planned = machine.terminal.type("plan", "2.15", "--host", HOSTS / "blackwell-no-smi.json", "--json")
    assert build_of(planned) == "2.15.0+cu132"


def test_an_image_that_sees_no_device_is_planned_for_the_cpu_with_a_warning(machine: Sysroot) -> None:
    planned = machine.plan()
    assert build_of(planned) == "2.15.0+cpu"
    (warning,) = [line for line in planned.json["warnings"] if line["code"] == "no-device"]
    assert warning["message"].startswith("No GPU found, so this is a CPU plan.")
    assert "--backend cu132" in warning["message"]

    by_hand = machine.plan("--backend", "cu132", "--capability", "12.0")
    assert build_of(by_hand) == "2.15.0+cu132"
    assert "unproven" in {line["code"] for line in by_hand.json["warnings"]}
