"""An accelerator that was seen is never lost, and one that is not there is never seen."""

from pathlib import Path

import pytest
from tests.plan.hosts import planned
from tests.support.machine import Says, nvidia_libraries, pci, probed, sample

from torchenv.host.model import Amd, Capability, Host, Intel, Nvidia, Status
from torchenv.host.probe import reparse
from torchenv.host.probe.nvidia import QUERY
from torchenv.host.probe.nvidia_smi import parse_screen
from torchenv.host.probe.torch_messages import complaint
from torchenv.plan import Outcome

WSL = {"/proc/version": sample("proc-version-wsl2.txt"), "/dev/dxg": ""}
NOT_LOADED = Says(
    "\x1b[31mROCk module is NOT loaded, possibly no GPU devices\x1b[0m\n"
    "Unable to open /dev/kfd read-write: No such file or directory\n",
    code=1,
)
FIELDS = "index, uuid, name, driver_version, memory.total [MiB], compute_cap, mig.mode.current"
NO_DRIVER = Says(sample("nvsmi-err-no-communication.txt"), code=9)


def of_class(kind: str, device: str) -> dict[str, str]:
    """Return the files of a PCI device of another class than that of displays."""
    files = pci(device)
    return {path: kind if path.endswith("/class") else text for path, text in files.items()}


def bind(root: Path, slot: str, driver: str) -> None:
    """Bind a kernel driver to a PCI device, as the kernel shows it."""
    place = root / "sys/bus/pci/devices" / slot
    place.mkdir(parents=True, exist_ok=True)
    (place / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


def codes(host: Host) -> list[str]:
    return [problem.code for problem in host.problems]


@pytest.mark.parametrize("kind", ["0x030000", "0x030200", "0x038000", "0x0b4000", "0x120000"])
@pytest.mark.parametrize("device", ["10de:2330", "1002:74a1"])
def test_a_card_of_any_class_for_accelerators_is_seen(tmp_path: Path, kind: str, device: str) -> None:
    host = probed(tmp_path, of_class(kind, f"0000:1b:00.0 {device}"))
    statuses = {host.nvidia.status, host.amd.status}
    assert statuses == {Status.UNREADABLE, Status.ABSENT}


@pytest.mark.parametrize(
    ("kind", "device"), [("0x120000", "8086:7d1d"), ("0x0b4000", "8086:37c8"), ("0x040300", "10de:228b")]
)
def test_what_is_no_gpu_is_not_taken_for_one(tmp_path: Path, kind: str, device: str) -> None:
    host = probed(tmp_path, of_class(kind, f"0000:00:0b.0 {device}"))
    assert (host.nvidia, host.intel) == (Nvidia(), Intel())


@pytest.mark.parametrize("number", ["e220", "e221", "e222", "e223"])
def test_arc_pro_cards_of_the_b_series_are_known(tmp_path: Path, number: str) -> None:
    host = probed(tmp_path, pci(f"0000:03:00.0 8086:{number}"))
    assert [(card.name, card.xpu) for card in host.intel.devices] == [("Intel Arc B-Series Graphics", True)]


def test_rocm_in_wsl_that_names_no_gpu_is_told_of_its_switch(tmp_path: Path) -> None:
    host = probed(tmp_path, WSL, {"rocminfo": NOT_LOADED})
    assert host.amd == Amd(status=Status.UNREADABLE)
    (problem,) = host.problems
    assert "set HSA_ENABLE_DXG_DETECTION=1" in problem.message


def test_rocm_installed_beside_an_nvidia_gpu_in_wsl_is_no_second_gpu(tmp_path: Path) -> None:
    answer = f"{FIELDS}\n0, [N/A], NVIDIA L4, 581.42, 23034, 8.9, [N/A]\n"
    host = probed(tmp_path, WSL, {"rocminfo": NOT_LOADED, QUERY: answer})
    assert (host.nvidia.status, host.amd.status) == (Status.FOUND, Status.ABSENT)


def test_wsl_without_any_tool_of_amd_has_no_gpu_of_it(tmp_path: Path) -> None:
    assert probed(tmp_path, WSL).amd == Amd()


LEVEL_ZERO = {"/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1": ""}
# What the bus of every WSL shows: Microsoft's own renderer.
RENDERER = of_class("0x030200", "5582:00:00.0 1414:008e")


@pytest.mark.parametrize(
    ("files", "tools"),
    [
        (LEVEL_ZERO, {}),
        ({"/usr/lib64/libze_intel_gpu.so.1": ""}, {}),
        ({}, {"xpu-smi": Says(sample("xpu-smi-err-no-device.txt"), code=1)}),
        ({}, {"xpu-smi": Says("Error: Level Zero Initialization Error\n", code=1)}),
    ],
    ids=["Debian", "Red Hat", "no device", "fails"],
)
def test_intels_driver_in_wsl_that_names_no_gpu_is_no_cpu_plan(
    tmp_path: Path, files: dict[str, str], tools: dict[str, str | Says]
) -> None:
    host = probed(tmp_path, {**WSL, **RENDERER, **files}, tools)
    assert host.intel == Intel(status=Status.UNREADABLE)
    said = (
        "WSL has /dev/dxg and Intel's driver is installed in it, and nothing names a GPU:"
        " update Intel's driver in Windows"
    )
    assert [problem.message for problem in host.problems] == [said]
    plan = planned(host)
    assert plan.outcome is Outcome.BLOCKED
    assert plan.hint is not None
    assert "choose a build with --backend xpu; or go on without it: --accept-cpu" in plan.hint


def test_an_intel_gpu_that_a_tool_names_in_wsl_is_found(tmp_path: Path) -> None:
    tools: dict[str, str | Says] = {"xpu-smi": sample("xpu-smi-discovery-max1100.json")}
    host = probed(tmp_path, {**WSL, **RENDERER}, tools)
    assert [(card.name, card.xpu) for card in host.intel.devices] == [
        ("Intel(R) Data Center GPU Max 1100", True)
    ]


def test_intels_driver_beside_an_nvidia_gpu_in_wsl_is_no_second_gpu(tmp_path: Path) -> None:
    answer = f"{FIELDS}\n0, [N/A], NVIDIA L4, 581.42, 23034, 8.9, [N/A]\n"
    host = probed(tmp_path, {**WSL, **LEVEL_ZERO}, {QUERY: answer})
    assert (host.nvidia.status, host.intel) == (Status.FOUND, Intel())


def test_intels_driver_outside_wsl_is_no_sight_of_a_gpu(tmp_path: Path) -> None:
    assert probed(tmp_path, LEVEL_ZERO).intel == Intel()


def test_a_rocm_tool_that_fails_by_its_driver_is_a_sight_where_no_bus_was_read(tmp_path: Path) -> None:
    host = probed(tmp_path, tools={"rocminfo": NOT_LOADED})
    assert host.amd == Amd(status=Status.UNREADABLE)
    said = "rocminfo says `ROCk module is NOT loaded, possibly no GPU devices`"
    assert [problem.message for problem in host.problems] == [said]


def test_a_rocm_tool_that_fails_on_a_bus_without_amd_is_no_sight(tmp_path: Path) -> None:
    host = probed(tmp_path, pci("0000:02:00.0 1a03:2000"), {"rocminfo": NOT_LOADED})
    assert host.amd == Amd()
    assert codes(host) == ["rocm-idle"]


def test_the_module_of_amd_is_a_sight_and_named(tmp_path: Path) -> None:
    host = probed(tmp_path, {"/sys/module/amdgpu/version": "6.12.12\n"})
    assert host.amd == Amd(status=Status.UNREADABLE)
    assert [problem.message for problem in host.problems] == [
        "the AMD driver amdgpu 6.12.12 is loaded, but no GPU answers"
    ]


def test_a_tool_of_nvidia_on_a_bus_without_nvidia_is_no_sight(tmp_path: Path) -> None:
    host = probed(tmp_path, pci("0000:03:00.0 1002:744c"), {"nvidia-smi": NO_DRIVER})
    assert host.nvidia == Nvidia()
    assert host.amd.status is Status.UNREADABLE
    message = "the NVIDIA driver is not loaded; no NVIDIA GPU is on the bus, so this does not matter here"
    assert message in [problem.message for problem in host.problems]


@pytest.mark.parametrize(
    "sight",
    [
        pci("0000:01:00.0 10de:2684"),
        {"/proc/driver/nvidia/version": sample("proc-driver-nvidia-version-proprietary.txt")},
        {"/proc/device-tree/compatible": "nvidia,p3737-0000\0nvidia,tegra234\0"},
        {"/proc/version": sample("proc-version-wsl2.txt")},
    ],
    ids=["card", "driver", "Jetson", "WSL"],
)
def test_a_tool_that_fails_beside_any_sight_never_means_absent(tmp_path: Path, sight: dict[str, str]) -> None:
    files = {**pci("0000:03:00.0 1002:744c"), **sight}
    assert probed(tmp_path, files, {"nvidia-smi": NO_DRIVER}).nvidia.status is not Status.ABSENT


def test_a_lost_card_above_good_rows_is_told(tmp_path: Path) -> None:
    lost = "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error\n"
    good = "".join(f"{number}, [N/A], NVIDIA L4, 580.95.05, 23034, 8.9, [N/A]\n" for number in (1, 2))
    host = probed(tmp_path, tools={"nvidia-smi": f"{lost}{FIELDS}\n{good}"})
    assert [card.index for card in host.nvidia.devices] == [1, 2]
    assert codes(host) == ["gpu-lost"]


def test_a_card_that_nvml_counts_and_cannot_ask_takes_nothing_from_the_others(tmp_path: Path) -> None:
    devices = [
        {"index": 0, "error": "GPU is lost", "code": 15},
        {"index": 1, "name": "NVIDIA L4", "compute_cap": "8.9"},
    ]
    library = nvidia_libraries({"driver": "580.95.05", "devices": devices})
    host = probed(tmp_path, tools={"ask_nvml.py": library})
    assert [(card.index, card.name) for card in host.nvidia.devices] == [(1, "NVIDIA L4")]
    assert [problem.message for problem in host.problems] == [
        "the driver lost GPU 0 (GPU is lost): reboot to get it back"
    ]


def test_a_container_that_lost_its_gpus_is_told_to_start_again(tmp_path: Path) -> None:
    said = Says("Failed to initialize NVML: Unknown Error\n", code=255)
    host = probed(tmp_path, tools={"nvidia-smi": said})
    assert host.nvidia.status is Status.UNREADABLE
    assert [problem.message for problem in host.problems] == [
        "NVML fails with `Unknown Error`: a running container has lost its GPUs; start it again"
    ]


@pytest.mark.parametrize(
    ("chip", "capability"), [("tegra194", (7, 2)), ("tegra234", (8, 7)), ("tegra264", (11, 0))]
)
def test_a_jetson_is_known_by_the_chip_of_its_device_tree(
    tmp_path: Path, chip: str, capability: tuple[int, int]
) -> None:
    files = {"/proc/device-tree/compatible": f"nvidia,p3737-0000+p3701-0000\0nvidia,{chip}\0"}
    host = probed(tmp_path, files, {"nvidia-smi": NO_DRIVER})
    assert host.nvidia.tegra
    assert [board.compute_capability for board in host.nvidia.devices] == [capability]


def test_a_row_without_a_driver_keeps_its_other_values(tmp_path: Path) -> None:
    files = {
        "/proc/device-tree/compatible": "nvidia,tegra234\0",
        "/etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic, EABI: aarch64\n",
    }
    answer = f"{FIELDS}\n0, [N/A], Orin (nvgpu), N/A, 62841, N/A, N/A\n"
    host = probed(tmp_path, files, {QUERY: answer})
    (board,) = host.nvidia.devices
    assert (board.name, board.memory_mib, board.compute_capability) == ("Orin (nvgpu)", 62841, (8, 7))
    assert (host.nvidia.driver, str(host.nvidia.l4t), host.nvidia.tegra) == (None, "36.4.3", True)
    assert [problem.message for problem in host.problems] == [
        "this is a Jetson with Jetson Linux (L4T) 36.4.3 (JetPack 6.2)"
    ]


# The first lines of /etc/nv_tegra_release as boards have them.
@pytest.mark.parametrize(
    ("release", "l4t", "jetpack", "tegra"),
    [
        ("# R32 (release), REVISION: 5.1, GCID: 26202423, BOARD: t186ref", "32.5.1", "4.5.1", True),
        ("# R32 (release), REVISION: 7.1, GCID: 29689809, BOARD: t186ref", "32.7.1", "4.6.1", True),
        ("# R34 (release), REVISION: 1.1, GCID: 30414990, BOARD: t186ref", "34.1.1", "5.0.1 DP", True),
        ("# R35 (release), REVISION: 1.0, GCID: 31346300, BOARD: t186ref", "35.1.0", "5.0.2", True),
        ("# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref", "35.4.1", "5.1.2", True),
        ("# R35 (release), REVISION: 6.4, GCID: 1, BOARD: generic", "35.6.4", "5.1.6", True),
        ("# R36 (release), REVISION: 4.0, GCID: 37537400, BOARD: generic", "36.4.0", "6.1", True),
        ("# R36 (release), REVISION: 5.0, GCID: 1, BOARD: generic", "36.5.0", "6.2.2", True),
        # A release that came later: JetPack's major version is known.
        ("# R36 (release), REVISION: 9.1, GCID: 1, BOARD: generic", "36.9.1", "6", True),
        ("# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic", "38.2.0", "7.0", False),
        ("# R38 (release), REVISION: 4.0, GCID: 43443517, BOARD: generic", "38.4.0", "7.1", False),
        ("# R39 (release), REVISION: 2.0, GCID: 45755727, BOARD: generic", "39.2.0", "7.2", False),
        ("# R40 (release), REVISION: 1.0, GCID: 1, BOARD: generic", "40.1.0", None, False),
    ],
)
def test_a_jetson_is_named_with_the_jetpack_of_its_release(
    tmp_path: Path, release: str, l4t: str, jetpack: str | None, *, tegra: bool
) -> None:
    host = probed(
        tmp_path, {"/etc/nv_tegra_release": f"{release}, EABI: aarch64, DATE: Fri\n# KERNEL_VARIANT: oot\n"}
    )
    assert (str(host.nvidia.l4t), host.nvidia.tegra) == (l4t, tegra)
    of = f" (JetPack {jetpack})" if jetpack else ""
    assert f"this is a Jetson with Jetson Linux (L4T) {l4t}{of}" in [
        problem.message for problem in host.problems
    ]


def test_a_driver_file_without_a_number_leaves_the_word_to_the_tool(tmp_path: Path) -> None:
    # Thor with Jetson Linux 38.4 writes this in place of its driver's number.
    build = "TempVersion  Release Build  (bugfix_main)  Tue Dec 30 15:54:35 PST 2025"
    files = {
        "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {build}\n",
        "/proc/device-tree/compatible": "nvidia,p4071-0000+p3834-0008\0nvidia,tegra264\0",
        "/etc/nv_tegra_release": "# R38 (release), REVISION: 4.0, GCID: 43443517, BOARD: generic\n",
    }
    answer = f"{FIELDS}\n0, [N/A], NVIDIA Thor, 580.00, [N/A], 11.0, Disabled\n"
    host = probed(tmp_path, files, {QUERY: answer})
    assert (str(host.nvidia.driver), host.nvidia.tegra) == ("580.00", False)
    assert [device.compute_capability for device in host.nvidia.devices] == [(11, 0)]


def test_the_plain_screen_knows_sliced_cards() -> None:
    screen = """\
| NVIDIA-SMI 535.183.01             Driver Version: 535.183.01   CUDA Version: 12.2     |
|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |                   On |
| N/A   35C    P0              64W / 400W |    87MiB / 81920MiB  |     N/A      Default |
|                                         |                      |              Enabled |
+-----------------------------------------+----------------------+----------------------+
|   1  NVIDIA A100-SXM4-80GB          On  | 00000000:0F:00.0 Off |                    0 |
| N/A   33C    P0              61W / 400W |     4MiB / 81920MiB  |      0%      Default |
|                                         |                      |             Disabled |
+-----------------------------------------+----------------------+----------------------+
"""
    assert parse_screen(screen).mig == (True, False)


def test_names_cut_short_on_the_screen_come_from_the_list(tmp_path: Path) -> None:
    screen = """\
| NVIDIA-SMI 440.33.01    Driver Version: 440.33.01    CUDA Version: 10.2     |
|   0  NVIDIA RTX 6000 Ada ...  Off  | 00000000:01:00.0 Off |                  N/A |
"""
    full = "GPU 0: NVIDIA RTX 6000 Ada Generation (UUID: GPU-00000000-0000-0000-0000-000000000001)\n"
    unknown = Says("Option --query-gpu=… is not recognized.\n", code=2)
    tools: dict[str, str | Says] = {
        QUERY: unknown,
        "nvidia-smi": screen,
        "nvidia-smi -L": full,
        "nvidia-smi -q -x": Says(code=2),
    }
    host = probed(tmp_path, tools=tools)
    assert [card.name for card in host.nvidia.devices] == ["NVIDIA RTX 6000 Ada Generation"]


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        ("nouveau", "bound to nouveau, which cannot run CUDA"),
        ("vfio-pci", "bound to vfio-pci, which lends it to a virtual machine"),
    ],
)
def test_a_card_that_another_driver_holds_is_unreadable_and_the_driver_named(
    tmp_path: Path, driver: str, words: str
) -> None:
    bind(tmp_path, "0000:01:00.0", driver)
    host = probed(tmp_path, pci("0000:01:00.0 10de:2684"))
    assert host.nvidia.status is Status.UNREADABLE
    assert f"an NVIDIA GPU without its driver: 10de:2684, {words}" in [
        problem.message for problem in host.problems
    ]


def test_a_card_that_only_shows_a_picture_is_named_so(tmp_path: Path) -> None:
    framebuffer = "/sys/bus/platform/drivers/simple-framebuffer/simple-framebuffer.0"
    host = probed(tmp_path, {**pci("0000:01:00.0 10de:2684"), framebuffer: ""})
    held = (
        "an NVIDIA GPU without its driver: 10de:2684, bound to simple-framebuffer, which only shows a picture"
    )
    assert held in [problem.message for problem in host.problems]


def test_a_card_lent_to_a_virtual_machine_beside_a_good_one_is_told(tmp_path: Path) -> None:
    bind(tmp_path, "0000:02:00.0", "vfio-pci")
    answer = f"{FIELDS}\n0, [N/A], NVIDIA L4, 580.95.05, 23034, 8.9, [N/A]\n"
    files = pci("0000:01:00.0 10de:27b8", "0000:02:00.0 10de:27b8")
    host = probed(tmp_path, files, {QUERY: answer})
    assert host.nvidia.status is Status.FOUND
    assert codes(host) == ["driver-stand-in"]


def test_a_card_of_intel_lent_to_a_virtual_machine_is_unreadable(tmp_path: Path) -> None:
    bind(tmp_path, "0000:03:00.0", "vfio-pci")
    assert probed(tmp_path, pci("0000:03:00.0 8086:e20b")).intel.status is Status.UNREADABLE


def test_what_torch_says_of_a_missing_driver_is_understood() -> None:
    text = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"
    found = complaint(text)
    assert found is not None
    assert found.code == "driver-missing"


def test_evidence_is_understood_again_as_it_was_the_first_time(tmp_path: Path) -> None:
    bind(tmp_path, "0000:01:00.0", "nouveau")
    files = {
        **pci("0000:01:00.0 10de:2684"),
        "/proc/device-tree/compatible": "nvidia,tegra234\0",
        "/sys/module/amdgpu/version": "6.12.12\n",
    }
    host = probed(tmp_path, files, {"rocminfo": NOT_LOADED})
    assert reparse(host) == host
    assert host.nvidia.devices[0].compute_capability == Capability(8, 7)
