"""Eight cards on the bus of which the kernel's compute topology and rocminfo know none."""

from __future__ import annotations

import pytest
from tests.support.machine import kfd, pci
from tests.support.sysroot import Sysroot

SLOTS = ("1b", "3d", "4d", "5d", "9b", "bb", "cb", "db")
ROCMINFO = """\
ROCk module is loaded
=====================
HSA Agents
==========
*******
Agent 1
*******
  Name:                    AMD EPYC 9554 64-Core Processor
  Uuid:                    CPU-XX
  Marketing Name:          AMD EPYC 9554 64-Core Processor
  Vendor Name:             CPU
  Device Type:             CPU
*** Done ***
"""


@pytest.mark.parametrize(
    ("kind", "device", "slots"),
    [("0x120000", "1002:74a1", SLOTS), ("0x038000", "1002:740f", SLOTS[:2])],
    ids=["MI300X", "MI210"],
)
def test_cards_without_their_driver_block_whatever_their_class(
    machine: Sysroot, kind: str, device: str, slots: tuple[str, ...]
) -> None:
    for slot in slots:
        files = pci(f"0000:{slot}:00.0 {device}")
        machine.write({path: kind if path.endswith("class") else text for path, text in files.items()})
    # The screen of the board's own management processor is no card.
    machine.write({**pci("0000:02:00.0 1a03:2000"), **kfd(0, 0)})
    machine.install("rocminfo", ROCMINFO)

    host = machine.probe()
    assert host["amd"]["status"] == "unreadable"
    planned = machine.plan()
    assert planned.code == 3
    assert planned.json["outcome"] == "blocked"
    assert planned.json["torch"] is None
    (reason,) = {problem["message"] for problem in host["problems"] if problem.get("vendor") == "amd"}
    assert f"{len(slots)} AMD GPUs ({device})" in reason
    assert "unknown to the driver" in reason
