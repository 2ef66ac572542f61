"""A card of 2016 behind a driver of today: the card decides, and a lock beside would undo the choice."""

from __future__ import annotations

from tests.support.sysroot import Sysroot, build_of

LOCK = 'version = 1\n\n[[package]]\nname = "torch"\nversion = "2.15.0"\n'


def test_the_card_decides_though_the_driver_would_do_for_cuda_13(machine: Sysroot) -> None:
    card = "580.95.05, NVIDIA GeForce GTX 1060 6GB, 6.1"
    machine.install("nvidia-smi", f"driver_version, name, compute_cap\n{card}")
    planned = machine.plan()
    assert build_of(planned) == "2.14.1+cu126"
    read = machine.terminal.type("plan", "2.15", "--host", "host.json")
    for value in ("6.1", "2.14", "7.5"):
        assert value in read.out
    refused = {(line["torch"], line["backend"]): line["code"] for line in planned.json["rejected"]}
    assert refused["2.15.0", "cu132"] == refused["2.15.0", "cu134"] == "capability-unsupported"
    assert "torch 2.14.1 (cu126) is the newest release that supports it" in read.out


def test_a_lock_that_would_bring_2_15_back_is_named_before_anything_is_made(machine: Sysroot) -> None:
    card = "580.95.05, NVIDIA GeForce GTX 1060 6GB, 6.1"
    machine.install("nvidia-smi", f"driver_version, name, compute_cap\n{card}")
    (machine.terminal.cwd / "uv.lock").write_text(LOCK, "utf-8")
    machine.probe()
    made = machine.terminal.type("create", "2.15", "--host", "host.json", "--dry-run")
    assert "pins torch 2.15.0: `uv sync` installs that again" in made.err
    assert machine.terminal.built() == []
