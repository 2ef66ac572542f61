"""What the probe says of NVIDIA's driver and GPUs on machines of every kind."""

from pathlib import Path
from typing import Any

import pytest
from pynvml import NVMLError
from tests.support.machine import (
    HANGS,
    Says,
    Tools,
    nvidia_libraries,
    pci,
    probed,
    sample,
)

from torchenv.host.model import (
    Capability,
    Nvidia,
    NvidiaDevice,
    Problem,
    Status,
    WrittenVersion,
)
from torchenv.host.probe.nvidia import QUERY
from torchenv.system.process import End

DRIVER = "/proc/driver/nvidia/version"
MODULE_575 = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.64.03  Wed Jul  2 2025\n"
WSL = {
    "/proc/version": sample("proc-version-wsl2.txt"),
    "/usr/lib/wsl/lib/nvidia-smi": "",
}
FIELDS = "index, uuid, name, driver_version, memory.total [MiB], compute_cap, mig.mode.current"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n"


def rows(*lines: str) -> str:
    return "\n".join((FIELDS, *lines, ""))


def row(
    index: int,
    name: str,
    capability: str,
    *,
    driver: str = "580.95.05",
    uuid: str = "[N/A]",
    mig: str = "[N/A]",
) -> str:
    return f"{index}, {uuid}, {name}, {driver}, 24564, {capability}, {mig}"


def device(index: int, name: str, **said: Any) -> dict[str, Any]:
    return {"index": index, "name": name, "compute_cap": "8.9", "memory_mib": 24564, **said}


def of_nvml(*devices: dict[str, Any], driver: str = "580.95.05") -> dict[str, str | Says]:
    return {"ask_nvml.py": nvidia_libraries({"driver": driver, "devices": list(devices)})}


def test_a_machine_without_anything_of_nvidia_has_none(tmp_path: Path) -> None:
    host = probed(tmp_path, pci("0000:00:02.0 1234:1111"))
    assert host.nvidia == Nvidia()
    assert host.problems == ()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_wsl_with_two_cards_gives_two_devices_and_one_driver(tmp_path: Path, end: str) -> None:
    two = rows(
        row(0, "NVIDIA GeForce RTX 4070 Ti", "8.9", driver="581.42"),
        row(1, "NVIDIA GeForce RTX 4070 Ti", "8.9", driver="581.42"),
    )
    tools = Tools({"/usr/lib/wsl/lib/nvidia-smi": two.replace("\n", end)})
    host = probed(tmp_path, WSL, tools)
    assert host.wsl
    assert host.platform == "linux-x86_64"
    assert str(host.nvidia.driver) == "581.42"
    assert [(device.name, device.compute_capability) for device in host.nvidia.devices] == [
        ("NVIDIA GeForce RTX 4070 Ti", (8, 9)),
        ("NVIDIA GeForce RTX 4070 Ti", (8, 9)),
    ]


def test_wsl_is_never_told_to_install_a_driver_of_linux(tmp_path: Path) -> None:
    tools = {"nvidia-smi": Says(sample("nvsmi-err-no-communication.txt"), code=9)}
    host = probed(tmp_path, WSL, tools)
    assert host.nvidia.status is Status.UNREADABLE
    message = "the NVIDIA driver is not loaded: update it in Windows, never inside WSL"
    assert host.problems == (Problem("driver-not-loaded", QUERY, message),)


def test_two_drivers_in_one_answer_are_an_error_that_names_both(tmp_path: Path) -> None:
    two = rows(row(0, "NVIDIA L4", "8.9", driver="580.95.05"), row(1, "NVIDIA L4", "8.9", driver="581.42"))
    host = probed(tmp_path, tools={"nvidia-smi": two})
    assert host.nvidia == Nvidia(status=Status.UNREADABLE)
    message = "nvidia-smi names two drivers, 580.95.05 and 581.42"
    assert host.problems == (Problem("drivers-disagree", QUERY, message),)


@pytest.mark.parametrize("code", [18, 0])
def test_a_driver_updated_by_half_is_a_state_of_its_own(tmp_path: Path, code: int) -> None:
    files = {DRIVER: MODULE_575, **pci("0000:01:00.0 10de:2684")}
    host = probed(tmp_path, files, {"nvidia-smi": Says(MISMATCH, code=code)})
    assert host.nvidia == Nvidia(status=Status.UNREADABLE, driver=WrittenVersion("575.64.03"))
    message = (
        "the NVIDIA driver was only partly updated: the kernel module is 575.64.03 and the library 580.126;"
        " reboot or reload the module, then run again"
    )
    assert host.problems == (Problem("driver-library-mismatch", QUERY, message),)


def test_a_half_update_that_only_nvml_sees_names_both_versions_too(tmp_path: Path) -> None:
    failure = {"error": str(NVMLError(18)), "code": 18, "library": "580.126.09"}
    host = probed(tmp_path, {DRIVER: MODULE_575}, {"ask_nvml.py": nvidia_libraries(failure)})
    assert host.nvidia.status is Status.UNREADABLE
    (problem,) = host.problems
    assert problem.code == "driver-library-mismatch"
    assert "575.64.03 and the library 580.126.09; reboot" in problem.message


BLACKWELL = {
    "driver": "590.48.01",
    "devices": [{"index": 0, "name": "NVIDIA RTX PRO 6000 Blackwell", "compute_cap": "12.0"}],
}


def test_a_container_with_only_the_libraries_is_read_through_them(tmp_path: Path) -> None:
    host = probed(tmp_path, tools={"ask_nvml.py": nvidia_libraries(BLACKWELL)})
    assert host.nvidia == Nvidia(
        status=Status.FOUND,
        driver=WrittenVersion("590.48.01"),
        devices=(
            NvidiaDevice(index=0, name="NVIDIA RTX PRO 6000 Blackwell", compute_capability=Capability(12, 0)),
        ),
    )


def test_a_tool_that_hangs_takes_nothing_from_what_nvml_says(tmp_path: Path) -> None:
    tools: dict[str, str | Says] = {"ask_nvml.py": nvidia_libraries(BLACKWELL), "nvidia-smi": HANGS}
    host = probed(tmp_path, tools=tools)
    assert host.nvidia.status is Status.FOUND
    assert [device.compute_capability for device in host.nvidia.devices] == [(12, 0)]


def test_a_tool_that_hangs_alone_is_a_driver_that_cannot_be_asked_and_is_asked_once(tmp_path: Path) -> None:
    tools = Tools({"ask_nvml.py": nvidia_libraries(None), "nvidia-smi": HANGS})
    host = probed(tmp_path, tools=tools)
    assert host.nvidia == Nvidia(status=Status.UNREADABLE)
    message = "nvidia-smi says: did not answer within 10 s"
    assert host.problems == (Problem("nvidia-smi-failed", "nvidia-smi", message),)
    assert [command.argv[0] for command in tools.asked].count("nvidia-smi") == 1


HANGING_LIBRARY = Says(code=124, err="libnvidia-ml is loaded\n", end=End.OUT_OF_TIME)


def test_libraries_that_hang_are_there(tmp_path: Path) -> None:
    host = probed(tmp_path, tools={"ask_nvml.py": HANGING_LIBRARY})
    assert host.nvidia == Nvidia(status=Status.UNREADABLE)
    assert host.problems == (Problem("nvml-failed", "NVML", "NVML says: did not answer within 10 s"),)


@pytest.mark.parametrize("child", [HANGS, Says(code=1, err="MemoryError")])
def test_a_python_that_fails_by_itself_says_nothing_of_a_gpu(tmp_path: Path, child: Says) -> None:
    assert probed(tmp_path, tools={"ask_nvml.py": child}).nvidia == Nvidia()


def test_libraries_that_hang_leave_the_tool_to_be_trusted(tmp_path: Path) -> None:
    working = Says(rows(row(0, "NVIDIA L4", "8.9")))
    tools: dict[str, str | Says] = {"ask_nvml.py": HANGING_LIBRARY, "nvidia-smi": working}
    host = probed(tmp_path, tools=tools)
    assert [device.name for device in host.nvidia.devices] == ["NVIDIA L4"]


def test_libcuda_stands_in_for_nvml(tmp_path: Path) -> None:
    tools = {"ask_nvml.py": nvidia_libraries(None, {"devices": [device(0, "NVIDIA GeForce RTX 4090")]})}
    host = probed(tmp_path, tools=tools)
    assert host.nvidia.status is Status.FOUND
    assert host.nvidia.driver is None
    assert host.nvidia.devices[0].compute_capability == (8, 9)


def test_a_library_for_building_proves_no_gpu(tmp_path: Path) -> None:
    stub = {"error": "CUDA driver is a stub library", "code": 34}
    assert probed(tmp_path, tools={"ask_nvml.py": nvidia_libraries(None, stub)}).nvidia == Nvidia()


def test_an_image_being_built_has_no_gpu(tmp_path: Path) -> None:
    host = probed(tmp_path, {"/.dockerenv": ""})
    assert host.container
    assert host.nvidia == Nvidia()


def test_nvcc_is_never_evidence(tmp_path: Path) -> None:
    tools = Tools({"nvcc": "Cuda compilation tools, release 13.2"})
    assert probed(tmp_path, tools=tools).nvidia == Nvidia()
    assert not any("nvcc" in str(command) for command in tools.asked)


def test_a_driver_without_a_device_is_unreadable_and_not_absent(tmp_path: Path) -> None:
    host = probed(tmp_path, {DRIVER: MODULE_575})
    assert host.nvidia == Nvidia(status=Status.UNREADABLE, driver=WrittenVersion("575.64.03"))
    message = (
        "NVIDIA driver 575.64.03 is loaded, but no GPU answers; a container must be started with its"
        " GPUs (`--gpus all`)"
    )
    assert host.problems == (Problem("no-devices", DRIVER, message),)


def test_a_card_without_its_driver_is_unreadable(tmp_path: Path) -> None:
    host = probed(tmp_path, pci("0000:01:00.0 10de:2684", "0000:00:02.0 8086:3e92"))
    assert host.nvidia == Nvidia(status=Status.UNREADABLE)
    message = "an NVIDIA GPU (10de:2684) is in this machine without a working driver"
    assert host.problems == (Problem("driver-missing", "PCI", message),)


@pytest.mark.parametrize(
    ("text", "code", "problem"),
    [
        ("nvsmi-err-no-communication.txt", 9, "driver-not-loaded"),
        ("nvsmi-err-nvml-not-found.txt", 12, "nvml-missing"),
        ("nvsmi-err-insufficient.txt", 4, "nvml-permission"),
        ("nvsmi-err-gpu-lost.txt", 15, "gpu-lost"),
        ("nvsmi-err-wsl-blocked.txt", 255, "wsl-blocked"),
    ],
)
def test_a_tool_that_complains_means_that_something_is_there(
    tmp_path: Path, text: str, code: int, problem: str
) -> None:
    host = probed(tmp_path, tools={"nvidia-smi": Says(sample(text), code=code)})
    assert host.nvidia == Nvidia(status=Status.UNREADABLE)
    assert [problem.code for problem in host.problems] == [problem]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (4, "nvml-permission"),
        (9, "driver-not-loaded"),
        (15, "gpu-lost"),
        (17, "wsl-blocked"),
        (999, "nvml-failed"),
    ],
)
def test_nvml_complains_of_the_same_in_words_of_its_own(tmp_path: Path, code: int, problem: str) -> None:
    failure = {"error": str(NVMLError(code)), "code": code, "library": None}
    host = probed(tmp_path, tools={"ask_nvml.py": nvidia_libraries(failure)})
    assert host.nvidia == Nvidia(status=Status.UNREADABLE)
    assert [problem.code for problem in host.problems] == [problem]


def test_a_shell_that_finds_no_tool_means_nothing(tmp_path: Path) -> None:
    said = Says(err=sample("nvsmi-err-not-found-shell.txt"), code=127)
    assert probed(tmp_path, tools={"nvidia-smi": said}).nvidia == Nvidia()


def test_an_old_driver_is_asked_again_in_words_that_it_knows(tmp_path: Path) -> None:
    tools: dict[str, str | Says] = {
        QUERY: Says('Field "compute_cap" is not a valid field to query.\n', code=2),
        "nvidia-smi --query-gpu=index,uuid,name,driver_version,memory.total --format=csv,nounits": (
            "index, uuid, name, driver_version, memory.total [MiB]\n0, [N/A], Tesla K80, 470.256.02, 11441\n"
        ),
    }
    host = probed(tmp_path, tools=tools)
    assert str(host.nvidia.driver) == "470.256.02"
    assert host.nvidia.devices == (NvidiaDevice(index=0, name="Tesla K80", memory_mib=11441),)
    assert host.problems == ()


@pytest.mark.parametrize(
    ("answer", "driver", "name"),
    [
        (
            {"nvidia-smi -q -x": sample("nvsmi-qx-cuda-not-found.xml")},
            "565.57.01",
            "NVIDIA RTX 6000 Ada Generation",
        ),
        ({"nvidia-smi": sample("nvsmi-header-kmd-umd-610.txt")}, "610.57.04", "NVIDIA GeForce RTX 5090"),
    ],
)
def test_a_tool_that_knows_no_question_still_has_its_log_and_its_screen(
    tmp_path: Path, answer: dict[str, str], driver: str, name: str
) -> None:
    unknown = Says("Option --query-gpu=… is not recognized.\n", code=2)
    tools: dict[str, str | Says] = {"nvidia-smi": Says(code=2), **answer, QUERY: unknown}
    host = probed(tmp_path, tools=tools)
    assert str(host.nvidia.driver) == driver
    assert [device.name for device in host.nvidia.devices] == [name]


def test_the_kernel_names_the_cards_where_nothing_else_does(tmp_path: Path) -> None:
    files = {
        DRIVER: sample("proc-driver-nvidia-version-proprietary.txt"),
        "/proc/driver/nvidia/gpus/0000:01:00.0/information": (
            "Model: \t\t NVIDIA GeForce RTX 4090\nIRQ:   \t\t 164\n"
            "GPU UUID: \t GPU-12345678-1234-1234-1234-123456789abc\n"
        ),
    }
    host = probed(tmp_path, files)
    assert str(host.nvidia.driver) == "535.183.01"
    assert host.nvidia.devices == (NvidiaDevice(index=0, name="NVIDIA GeForce RTX 4090"),)


def test_the_module_file_is_as_good_as_the_driver_file(tmp_path: Path) -> None:
    files = {"/sys/module/nvidia/version": sample("sys-module-nvidia-version.txt")}
    host = probed(tmp_path, files, of_nvml(device(0, "NVIDIA L4"), driver="550.144.03"))
    assert str(host.nvidia.driver) == "550.144.03"


def test_a_sliced_card_is_marked(tmp_path: Path) -> None:
    host = probed(tmp_path, tools={"nvidia-smi": rows(row(0, "NVIDIA A100-SXM4-80GB", "8.0", mig="Enabled"))})
    assert [device.mig for device in host.nvidia.devices] == [True]


@pytest.mark.parametrize(
    ("driver", "tegra"), [("540.4.0", True), ("580.00", False)], ids=["JetPack 6", "JetPack 7"]
)
def test_a_jetson_has_a_series_of_its_own_until_jetpack_7(
    tmp_path: Path, driver: str, *, tegra: bool
) -> None:
    files = {"/proc/device-tree/model": "NVIDIA Jetson AGX Developer Kit\0"}
    tools = {"nvidia-smi": rows(row(0, "Orin (nvgpu)", "[N/A]", driver=driver))}
    host = probed(tmp_path, files, tools)
    assert host.nvidia.tegra is tegra
    assert host.nvidia.devices == (NvidiaDevice(index=0, name="Orin (nvgpu)", memory_mib=24564),)


UUIDS = [f"GPU-{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "ab"]
UNEQUAL = (
    device(0, "NVIDIA GeForce GTX 1080 Ti", compute_cap="6.1", uuid=UUIDS[0]),
    device(1, "NVIDIA GeForce RTX 4090", uuid=UUIDS[1]),
)
EQUAL = tuple(device(number, "NVIDIA L4", uuid=uuid) for number, uuid in enumerate(UUIDS))
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("devices", "variables", "visible", "code"),
    [
        (UNEQUAL, {}, [True, True], None),
        (UNEQUAL, {"CUDA_VISIBLE_DEVICES": "1", **BY_BUS}, [False, True], "devices-masked"),
        (UNEQUAL, {"CUDA_VISIBLE_DEVICES": "1,0", **BY_BUS}, [True, True], None),
        (UNEQUAL, {"CUDA_VISIBLE_DEVICES": "0"}, [True, True], "mask-by-number"),
        (EQUAL, {"CUDA_VISIBLE_DEVICES": "0"}, [True, False], "devices-masked"),
        (EQUAL, {"CUDA_VISIBLE_DEVICES": "0,7,1"}, [True, False], "devices-masked"),
        (UNEQUAL, {"CUDA_VISIBLE_DEVICES": UUIDS[1]}, [False, True], "devices-masked"),
        (UNEQUAL, {"CUDA_VISIBLE_DEVICES": UUIDS[1][:12]}, [False, True], "devices-masked"),
        (UNEQUAL, {"CUDA_VISIBLE_DEVICES": "GPU-cccccccc"}, [True, True], "mask-unknown"),
        (UNEQUAL, {"CUDA_VISIBLE_DEVICES": ""}, [True, True], "mask-hides-everything"),
        (UNEQUAL, {"CUDA_VISIBLE_DEVICES": "-1"}, [True, True], "mask-hides-everything"),
    ],
)
def test_a_mask_hides_what_it_names_for_certain(
    tmp_path: Path,
    devices: tuple[dict[str, Any], ...],
    variables: dict[str, str],
    visible: list[bool],
    code: str | None,
) -> None:
    host = probed(tmp_path, tools=of_nvml(*devices), variables=variables)
    assert [device.visible for device in host.nvidia.devices] == visible
    assert [problem.code for problem in host.problems] == ([code] if code else [])


def test_a_mask_is_told_in_its_own_words(tmp_path: Path) -> None:
    variables = {"CUDA_VISIBLE_DEVICES": "1", **BY_BUS}
    host = probed(tmp_path, tools=of_nvml(*UNEQUAL), variables=variables)
    left, hidden = "GPU 1 (NVIDIA GeForce RTX 4090)", "GPU 0 (NVIDIA GeForce GTX 1080 Ti)"
    message = f"CUDA_VISIBLE_DEVICES=1 leaves {left} and hides {hidden}"
    assert host.problems == (Problem("devices-masked", "CUDA_VISIBLE_DEVICES", message),)


@pytest.mark.parametrize(
    "mask", ["MIG-00000000-0000-0000-0000-000000000002", "MIG-GPU-aaaaaaaa-1111-2222-3333-aaaaaaaaaaaa/1/0"]
)
def test_a_slice_stands_for_its_card(tmp_path: Path, mask: str) -> None:
    slices = ["MIG-00000000-0000-0000-0000-000000000001", "MIG-00000000-0000-0000-0000-000000000002"]
    cards = (device(0, "NVIDIA A100", uuid=UUIDS[0], mig=True, slices=slices), EQUAL[1])
    host = probed(tmp_path, tools=of_nvml(*cards), variables={"CUDA_VISIBLE_DEVICES": mask})
    assert [device.visible for device in host.nvidia.devices] == [True, False]


def test_the_list_of_the_tool_names_slices_where_nvml_does_not(tmp_path: Path) -> None:
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    tools = {
        "nvidia-smi": rows(
            row(0, "NVIDIA A100-SXM4-80GB", "8.0", uuid=uuid, mig="Enabled"), row(1, "NVIDIA L4", "8.9")
        ),
        "nvidia-smi -L": sample("nvsmi-L-mig.txt"),
    }
    variables = {"CUDA_VISIBLE_DEVICES": "MIG-00000000-0000-0000-0000-000000000001"}
    host = probed(tmp_path, tools=tools, variables=variables)
    assert [device.visible for device in host.nvidia.devices] == [True, False]


def test_a_driver_that_windows_lends_and_nobody_can_ask_is_not_absent(tmp_path: Path) -> None:
    host = probed(tmp_path, {**WSL, "/usr/lib/wsl/lib/libcuda.so.1": ""})
    assert host.nvidia == Nvidia(status=Status.UNREADABLE)
    message = "WSL uses the NVIDIA driver of Windows, but /usr/lib/wsl/lib/nvidia-smi does not answer"
    assert host.problems == (Problem("driver-unreadable", "/usr/lib/wsl/lib", message),)
