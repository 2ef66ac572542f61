"""Machines of other people, rebuilt as files and programs, from the probe to what is typed next."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import pytest
from tests.support.index import Index
from tests.support.machine import kfd, pci, sample
from tests.support.sysroot import Sysroot, build_of
from tests.support.terminal import Ended, Terminal
from tests.support.workspace import write_venv

FIELDS = "index, uuid, name, driver_version, memory.total [MiB], compute_cap, mig.mode.current"
WSL = {"/proc/version": sample("proc-version-wsl2.txt"), "/dev/dxg": ""}


def nvidia_smi(*rows: str) -> str:
    """Return what the tool prints, each row as `name, driver, capability`."""
    lines = []
    for number, row in enumerate(rows):
        name, driver, capability = row.split(", ")
        lines.append(f"{number}, [N/A], {name}, {driver}, 24564, {capability}, [N/A]")
    return "\n".join([FIELDS, *lines])


def read(machine: Sysroot, *words: str) -> Ended:
    """Plan 2.15 as a person reads it."""
    return machine.terminal.type("plan", "2.15", "--host", "host.json", *words)


# Seen is never lost, absent is never seen.


@pytest.mark.parametrize("number", ["e220", "e221", "e222", "e223"])
def test_arc_pro_cards_get_the_build_for_intel(machine: Sysroot, number: str) -> None:
    machine.write(pci(f"0000:03:00.0 8086:{number}"))
    assert build_of(machine.plan()) == "2.15.0+xpu"


def test_rocm_in_wsl_that_fails_is_no_cpu_plan(machine: Sysroot) -> None:
    machine.write(WSL)
    machine.install("rocminfo", "ROCk module is NOT loaded, possibly no GPU devices", code=1)
    planned = machine.plan()
    assert planned.code == 3
    said = read(machine).out
    assert "HSA_ENABLE_DXG_DETECTION=1" in said
    assert "choose a build with --backend rocm7.14; or go on without it: --accept-cpu" in said


def test_intels_driver_in_wsl_that_names_no_gpu_is_no_cpu_plan(machine: Sysroot) -> None:
    machine.write({**WSL, "/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1": ""})
    assert machine.plan().code == 3
    assert "choose a build with --backend xpu; or go on without it: --accept-cpu" in read(machine).out
    assert build_of(machine.plan("--backend", "xpu")) == "2.15.0+xpu"
    assert build_of(machine.plan("--accept-cpu")) == "2.15.0+cpu"


def test_an_amd_card_is_planned_for_beside_a_tool_of_nvidia_that_has_nothing_to_ask(machine: Sysroot) -> None:
    machine.write({**pci("0000:03:00.0 1002:744c"), **kfd(0, 110000)})
    machine.install("nvidia-smi", sample("nvsmi-err-no-communication.txt"), code=9)
    host = machine.probe()
    assert (host["nvidia"]["status"], host["amd"]["status"]) == ("absent", "found")
    planned = machine.plan()
    assert build_of(planned) == "2.15.0+rocm7.14"
    notes = [warning["message"] for warning in planned.json["warnings"]]
    assert (
        "the NVIDIA driver is not loaded; no NVIDIA GPU is on the bus, so this does not matter here" in notes
    )


def test_a_lost_card_above_good_rows_is_told_and_the_others_are_planned_for(machine: Sysroot) -> None:
    lost = "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error"
    machine.install("nvidia-smi", f"{lost}\n{nvidia_smi('NVIDIA L4, 580.95.05, 8.9')}")
    planned = machine.plan()
    assert build_of(planned) == "2.15.0+cu132"
    assert "the driver lost a GPU: reboot to get it back" in read(machine).out


def test_a_container_that_lost_its_devices_is_told_to_start_again(machine: Sysroot) -> None:
    machine.write({"/.dockerenv": ""})
    machine.install("nvidia-smi", "Failed to initialize NVML: Unknown Error", code=255)
    # The bus cannot be seen from within: the tool is the only sight.
    assert not (machine.root / "sys").exists()
    planned = machine.plan()
    assert planned.code == 3
    said = read(machine).out
    assert "a running container has lost its GPUs; start it again" in said
    assert "--backend cu132" in said


@pytest.mark.parametrize(
    ("chip", "capability"), [("tegra194", "7.2"), ("tegra234", "8.7"), ("tegra264", "11.0")]
)
def test_a_jetson_is_named_and_no_build_is_waved_through(
    machine: Sysroot, chip: str, capability: str
) -> None:
    release = "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8\n"
    compatible = f"nvidia,p3737-0000+p3701-0000\0nvidia,{chip}\0"
    machine.write({"/proc/device-tree/compatible": compatible, "/etc/nv_tegra_release": release})
    machine.install("nvidia-smi", nvidia_smi("Orin (nvgpu), N/A, N/A"))
    host = machine.probe()
    (board,) = host["nvidia"]["devices"]
    assert (board["name"], board["compute_capability"], host["nvidia"]["driver"]) == (
        "Orin (nvgpu)",
        capability,
        None,
    )
    for words in ((), ("--backend", "cu132")):
        refused = machine.plan(*words)
        assert refused.code == 3
        assert "Jetson Linux 36.4.3" in refused.json["why"][0]
    assert "this is a Jetson with Jetson Linux (L4T) 36.4.3 (JetPack 6.2)" in read(machine).out


def test_a_driver_that_cannot_change_is_told_of_every_way_on(machine: Sysroot) -> None:
    machine.write({"/.dockerenv": ""})
    machine.install("nvidia-smi", nvidia_smi("NVIDIA A100-SXM4-80GB, 470.256.02, 8.0"))
    assert machine.plan().code == 3
    said = read(machine).out
    assert "driver 525.60.13 or newer allows torch 2.14" in said
    assert "update the driver on the host of this container" in said
    assert "--accept-cpu" in said
    assert build_of(machine.plan("--accept-cpu")) == "2.15.0+cpu"


def test_the_profile_settles_which_of_two_makers_is_used(machine: Sysroot) -> None:
    machine.write(kfd(0, 110000))
    machine.install("nvidia-smi", nvidia_smi("NVIDIA GeForce RTX 4090, 580.95.05, 8.9"))
    assert machine.plan().code == 3
    assert "choose with --backend cu132 or --backend rocm7.14" in read(machine).out
    profile = machine.terminal.cwd / "torchenv.toml"
    profile.write_text('schema = 1\n[backend]\nonly = ["cu132"]\n', "utf-8")
    planned = machine.plan()
    assert build_of(planned) == "2.15.0+cu132"
    assert {device["vendor"]: device["served"] for device in planned.json["devices"]} == {
        "nvidia": True,
        "amd": False,
    }


def test_a_known_card_keeps_its_capability_and_an_image_is_planned_without_it(machine: Sysroot) -> None:
    machine.install("nvidia-smi", nvidia_smi("Tesla V100-PCIE-32GB, 580.82.07, 7.0"))
    assert build_of(machine.plan("--capability", "8.9")) == "2.14.1+cu126"
    refused = read(machine, "--backend", "cu132", "--capability", "8.9")
    assert refused.code == 3
    assert "such as the one that an image is for, with --devices none" in refused.out
    image = machine.plan("--devices", "none", "--backend", "cu132", "--capability", "8.9")
    assert build_of(image) == "2.15.0+cu132"
    assert image.json["unproven"] is True


def test_a_radeon_that_is_known_by_its_name_is_told_of_building_from_source(machine: Sysroot) -> None:
    agent = (
        "ROCk module is loaded\nAgent 1\n  Name:                    gfx906\n"
        "  Marketing Name:          AMD Radeon VII\n  Device Type:             GPU\n"
    )
    machine.install("rocminfo", agent)
    planned = machine.plan()
    assert build_of(planned) == "2.14.1+rocm7.2"
    said = read(machine).out
    assert "PYTORCH_ROCM_ARCH=gfx906" in said
    assert "lists no kernels for gfx906" in said


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has an NVIDIA GPU of its own")
@pytest.mark.parametrize("command", [("plan",), ("create", "--dry-run")], ids=" ".join)
def test_torch_is_started_to_ask_of_a_card_only_when_that_is_allowed(
    machine: Sysroot, command: tuple[str, ...]
) -> None:
    terminal = machine.terminal
    machine.install("nvidia-smi", nvidia_smi("NVIDIA Graphics Device, 580.95.05, [N/A]"))
    write_venv(terminal.cwd / ".venv", {"torch": "2.14.1+cu130"})
    answer = '{"torch": "2.14.1", "devices": [{"index": 0, "name": "NVIDIA Graphics Device"'
    answer += ', "compute_capability": "8.9", "gfx": null}]}'
    python = terminal.cwd / ".venv" / "bin" / "python"
    python.unlink()
    python.write_text(f"#!/bin/sh\necho started >> {terminal.cwd}/log\necho '{answer}'\n", "utf-8")
    python.chmod(0o755)
    words = (*command, "2.15", "--offline", "--json")
    refused = terminal.type(*words)
    assert refused.code == 3
    assert "capability-unknown" in {rejection["code"] for rejection in refused.json["rejected"]}
    assert f"with --ask-torch the torch in {terminal.cwd / '.venv'} is started and asked" in refused.err
    assert not (terminal.cwd / "log").exists()
    assert build_of(terminal.type(*words, "--ask-torch")) == "2.15.0+cu132"
    assert (terminal.cwd / "log").read_text("utf-8") == "started\n"


# The environment in use is the manifest's.


@pytest.fixture
def adopted(tmp_path: Path) -> Terminal:
    """A project whose recorded environment is another one than the shell's and than its `.venv`."""
    terminal = Terminal.within(tmp_path)
    write_venv(tmp_path / "recorded", {"torch": "2.14.1+cu130"})
    write_venv(tmp_path / "shells", {})
    write_venv(terminal.cwd / ".venv", {"torch": "2.15.0+cu132"})
    assert terminal.type("adopt", tmp_path / "recorded").code == 0
    terminal.environ["VIRTUAL_ENV"] = str(tmp_path / "shells")
    return terminal


def test_the_gate_before_a_new_line_counts_the_recorded_environment(adopted: Terminal) -> None:
    long = ("--profile", "distributed-training", "--offline", "--backend", "cpu")
    planned = adopted.type("plan", "2.15", *long, "--json").json
    assert planned["advice"]["verdict"] == "upgrade-at-checkpoint-boundary"
    assert "distributed checkpoints saved by 2.15.0 cannot be read by 2.14.1+cu130" in "".join(
        planned["advice"]["reasons"]
    )
    made = adopted.type("create", "2.15", *long, "--dry-run")
    assert "upgrade when you next start a run" in made.err


def test_the_python_of_the_environment_to_copy_comes_before_that_of_the_recorded_one(
    adopted: Terminal, index: Index, tmp_path: Path
) -> None:
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    other = "3.12" if own != "3.12" else "3.13"
    model = tmp_path / "model"
    write_venv(model, {"torch": "2.14.1+cpu"})
    (model / "lib" / f"python{own}").rename(model / "lib" / f"python{other}")
    settings = (model / "pyvenv.cfg").read_text("utf-8")
    (model / "pyvenv.cfg").write_text(settings.replace(f"version = {own}", f"version = {other}"), "utf-8")
    words = ("create", "2.15", "--backend", "cpu", "--dry-run", "--json")
    reached = {"TORCHENV_TORCH_INDEX": index.torch_root, "UV_PYTHON_INSTALL_MIRROR": index.root}
    copied = adopted.type(*words, "--like", model, **reached)
    assert copied.json["python"]["version"].startswith(other)
    assert adopted.type(*words, **reached).json["python"]["version"].startswith(own)


# A plan is what create does, also where the index is slow.


def test_a_slow_index_is_waited_for_two_seconds_and_that_is_said(
    terminal: Terminal, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchenv.actions.ask_index.PLAN_SECONDS", 0.2)
    done = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            connection.recv(1)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n<")
            done.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as server:
        slow = threading.Thread(target=lambda: drip(server.accept()[0]), daemon=True)
        slow.start()
        root = f"http://127.0.0.1:{server.getsockname()[1]}/whl"
        chosen = ("2.15", "--backend", "cpu", "--python", sys.executable)
        planned = terminal.type("plan", *chosen, "--json", TORCHENV_TORCH_INDEX=root)
        done.set()
        slow.join()
    assert planned.code == 0
    assert planned.json["index"] == f"{root}/cpu"
    assert [warning["code"] for warning in planned.json["warnings"]] == ["index-not-asked"]
    assert index.requests == []
