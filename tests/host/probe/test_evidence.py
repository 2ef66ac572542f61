"""What the probe keeps of what it saw, and that it can be understood again from that alone."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.support.machine import NOW, Says, Tools, kfd, nvidia_libraries, pci, probed, sample

from torchenv.guest import ask_nvml as child
from torchenv.host.model import Evidence, Host, Nvidia, Status
from torchenv.host.probe import Sources, ask_torch, probe, reparse
from torchenv.host.redact import mask_evidence
from torchenv.system.process import Command, Completed, Programs

UUID = "GPU-8f5c1a2b-1111-2222-3333-44445555abcd"
CARDS = [
    {
        "index": 0,
        "name": "NVIDIA L4",
        "compute_cap": "8.9",
        "uuid": "GPU-00c1a2b0-1111-2222-3333-44445555abcd",
    },
    {"index": 1, "name": "NVIDIA H100", "compute_cap": "9.0", "uuid": UUID},
]
BUSY = {
    "ask_nvml.py": nvidia_libraries({"driver": "580.95.05", "devices": CARDS}),
    "rocminfo": sample("rocminfo-mi250.txt"),
    "xpu-smi": sample("xpu-smi-discovery-max1100.json"),
}


def busy(root: Path) -> Host:
    """Probe a machine that has something of everything."""
    files = {
        "/proc/driver/nvidia/version": sample("proc-driver-nvidia-version-open-aarch64.txt"),
        "/proc/version": "Linux version 6.8.0-generic\n",
        **kfd(0, 90010),
        **pci("0000:00:02.0 8086:7d55", "0000:03:00.0 8086:e20b"),
    }
    work = root / "work/.venv"
    work.mkdir(parents=True)
    (work / "pyvenv.cfg").write_text("version = 3.12.3\n")
    variables = {"CUDA_VISIBLE_DEVICES": UUID[:10]}
    return probed(root, files, BUSY, variables, project=work.parent)


def test_a_host_is_the_same_when_its_evidence_is_understood_again(tmp_path: Path) -> None:
    host = busy(tmp_path)
    written = json.dumps(host.to_document())
    assert reparse(Host.from_json(written, "host.json")) == host


def test_understanding_again_looks_at_no_machine(tmp_path: Path) -> None:
    mac = {"system": "darwin", "machine": "arm64", "libc": ""}
    host = probed(tmp_path, tools={"sysctl": "machdep.cpu.brand_string: Apple M2\n"}, python=mac)
    assert reparse(host).platform == "darwin-arm64"


def test_a_document_put_together_by_hand_is_understood_too() -> None:
    question = "nvidia-smi --query-gpu=driver_version,name,compute_cap --format=csv,noheader"
    evidence = (Evidence(question, "read", "581.42, NVIDIA GeForce RTX 4070 Ti, 8.9\n"),)
    host = reparse(Host(system="windows", machine="amd64", evidence=evidence))
    assert host.platform == "windows-x86_64"
    assert [(device.name, device.compute_capability) for device in host.nvidia.devices] == [
        ("NVIDIA GeForce RTX 4070 Ti", (8, 9))
    ]


def test_no_identifier_is_left_and_masks_still_mean_the_same_card(tmp_path: Path) -> None:
    host = busy(tmp_path)
    assert [device.visible for device in host.nvidia.devices] == [False, True]
    written = json.dumps(host.to_document())
    assert "44445555abcd" not in written
    assert "8f5c1a2b" not in written
    assert [evidence.text for evidence in host.evidence if evidence.source == "$CUDA_VISIBLE_DEVICES"] == [
        "GPU-00000000-0000-0000-0000-000000000002"
    ]


def test_masking_what_is_masked_changes_nothing() -> None:
    evidence = (
        Evidence("amd-smi", "read", "ASIC_SERIAL: 0x1234ABCD\nunique_id 77\nGPU-000000000000004d\n"),
        Evidence("nodes", "read", "unique_id 77\nunique_id 78\n"),
        Evidence("xml", "read", "<serial>1320020012345</serial>\n"),
    )
    once = mask_evidence(evidence)
    assert [name.text for name in once] == [
        "ASIC_SERIAL: 0000000000\nunique_id 1\nGPU-0000000000000001\n",
        "unique_id 1\nunique_id 2\n",
        "<serial>0000000000000</serial>\n",
    ]
    assert mask_evidence(once) == once


def test_what_was_not_there_and_what_failed_are_kept_apart(tmp_path: Path) -> None:
    host = probed(tmp_path, tools={"rocminfo": Says("no", code=1)})
    outcomes = {evidence.source: evidence.outcome for evidence in host.evidence}
    assert outcomes["/proc/driver/nvidia/version"] == "absent"
    assert outcomes["xpu-smi discovery -j"] == "absent"
    assert outcomes["rocminfo"] == "failed"
    assert host.captured_at == "2026-11-30T08:00:00Z"


def test_a_file_that_may_not_be_read_is_a_driver_that_cannot_be_asked(tmp_path: Path) -> None:
    # A directory in its place cannot be read by anyone, whoever runs this test.
    (tmp_path / "proc/driver/nvidia/version").mkdir(parents=True)
    host = probed(tmp_path)
    assert host.nvidia == Nvidia(status=Status.UNREADABLE)


def test_a_copy_of_another_machine_is_read_without_this_ones_libraries(tmp_path: Path) -> None:
    tools = Tools({"nvidia-smi": "", "ldd": sample("ldd-version-glibc-2.35.txt")})
    root = tmp_path / "copy"
    driver = root / "proc/driver/nvidia/version"
    driver.parent.mkdir(parents=True)
    driver.write_text(sample("proc-driver-nvidia-version-proprietary.txt"))
    host = probe(Sources.sysroot(tools, {}, root), project=None, now=NOW)
    assert str(host.nvidia.driver) == "535.183.01"
    assert str(host.libc and host.libc.version) == "2.35"
    assert not any("ask_nvml.py" in str(command) for command in tools.asked)


def test_every_program_of_this_machine_is_really_asked(tmp_path: Path) -> None:
    variables = {"PATH": str(Path(sys.base_prefix, "bin"))}
    sources = Sources(run=Programs(variables), variables=variables, root=tmp_path)
    host = probe(sources, project=None, now=NOW)
    outcomes = {evidence.source: evidence.outcome for evidence in host.evidence}
    assert outcomes["NVML"] in {"absent", "read", "failed"}
    assert host.pythons


def failing(error: str, value: int) -> type:
    """Make a `pynvml` whose driver fails in one way."""

    class NVMLError(Exception):
        def __init__(self) -> None:
            super().__init__(error)
            self.value = value

    class Pynvml:
        NVML_ERROR_LIBRARY_NOT_FOUND = 12
        NVML_DEVICE_MIG_ENABLE = 1

        @staticmethod
        def nvmlDeviceGetName(_: object) -> str:  # noqa: N802
            return "NVIDIA A100"

        def __getattr__(self, name: str) -> object:
            if name == "NVMLError":
                return NVMLError
            if name == "nvmlDeviceGetHandleByIndex":
                return lambda index: index

            def fails(*_: object) -> object:
                raise NVMLError

            return fails

    return Pynvml


def test_a_card_that_keeps_everything_but_its_name_to_itself_is_still_a_card() -> None:
    assert child.nvml_device(failing("Not Supported", 3)(), 4) == {"index": 4, "name": "NVIDIA A100"}


LIBCUDA = r"""
#include <string.h>
#include <stddef.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "NVIDIA L4", length); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)24 << 30; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute - 67; return 0; }
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, 0xab, 16); return 0; }
"""


@pytest.mark.skipif(
    shutil.which("cc") is None or sys.platform != "linux", reason="needs a C compiler on Linux"
)
def test_libcuda_is_asked_through_its_own_interface(tmp_path: Path) -> None:
    (tmp_path / "cuda.c").write_text(LIBCUDA)
    # The same stands in for NVML, of which it has no function at all.
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        command = Command(("cc", "-shared", "-fPIC", "-o", str(tmp_path / name), str(tmp_path / "cuda.c")))
        Programs(os.environ)(command).check(f"compile a stand-in for {name}")
    variables = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PATH": ""}
    sources = Sources(run=Programs(variables), variables={}, root=tmp_path)
    host = probe(sources, project=None, now=NOW)
    (device,) = host.nvidia.devices
    assert [problem.code for problem in host.problems] == ["nvml-failed"]
    assert (device.name, str(device.compute_capability), device.memory_mib) == ("NVIDIA L4", "8.9", 24576)


def answer(out: str, *, err: str = "", code: int = 0) -> Completed:
    return Completed(ask_torch.question("/env/bin/python"), code, out, err)


def test_torch_is_asked_in_a_child_that_leaves_nothing_behind() -> None:
    command = ask_torch.question("/env/bin/python")
    assert command.argv[:3] == ("/env/bin/python", "-I", "-B")
    assert Path(command.argv[3]).name == "ask_torch_devices.py"


def test_what_torch_says_fills_in_what_nothing_else_knew(tmp_path: Path) -> None:
    said = {"index": 0, "name": "GRID A100D-80C", "compute_capability": "8.0", "gfx": None}
    out = f"a line of someone's sitecustomize\n{json.dumps({'torch': '2.14.1', 'devices': [said]})}\n"
    host = probed(tmp_path, tools={"nvidia-smi": "name, driver_version\nGRID A100D-80C, 570.158.01\n"})
    (device,) = ask_torch.fill_capabilities(host.nvidia.devices, ask_torch.parse(answer(out)))
    assert str(device.compute_capability) == "8.0"


def test_a_torch_that_fails_names_no_device_and_says_why() -> None:
    says = ask_torch.parse(answer("", err=sample("torch-err-driver-too-old.txt"), code=1))
    assert says.devices == ()
    assert says.complaint is not None
    assert (says.complaint.code, says.complaint.cuda) == ("driver-too-old", "12.2")
