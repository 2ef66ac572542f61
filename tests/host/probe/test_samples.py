"""Every recorded text of a tool or a kernel file means what was written down for it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.machine import SAMPLES, Says, Tools, probed, sample

from torchenv.catalogue.document import parse
from torchenv.host import probe
from torchenv.host.model import Amd, Intel, Nvidia, Status, WrittenVersion
from torchenv.host.probe import amd, intel, nvidia, nvidia_smi, pci, system, torch_messages
from torchenv.system.documents import Table

EXPECTED: Mapping[str, Mapping[str, Any]] = json.loads(sample("expected.json"))

# Said of the samples for a reader, or decided elsewhere: by the catalogue, or by where a text comes from.
NOT_THE_PROBES = {"note", "vendor", "os", "arch", "open_module", "smi_path"}


def samples(pattern: str) -> list[str]:
    found = sorted(path.name for path in SAMPLES.glob(pattern))
    assert found, pattern
    return found


def expected(name: str) -> dict[str, Any]:
    return {key: value for key, value in EXPECTED[name]["expect"].items() if key not in NOT_THE_PROBES}


def as_said(code: str) -> str:
    """Write the code of a problem as the samples do."""
    return code.replace("-", "_")


def test_every_sample_has_an_expected_value_and_every_value_its_sample() -> None:
    assert {path.name for path in SAMPLES.iterdir()} - {"expected.json"} == set(EXPECTED)


READERS: dict[str, Callable[[str], Mapping[str, Any]]] = {}


Reader = Callable[[str], Mapping[str, Any]]


def reads(pattern: str) -> Callable[[Reader], Reader]:
    def keep(reader: Reader) -> Reader:
        READERS.update(dict.fromkeys(samples(pattern), reader))
        return reader

    return keep


@reads("nvsmi-header-*.txt")
@reads("wsl2-nvidia-smi.txt")
def _screen(text: str) -> Mapping[str, Any]:
    screen = nvidia_smi.parse_screen(text)
    return {
        "driver": str(screen.driver),
        "cuda": screen.cuda,
        "gpus": list(screen.names),
        "jetson": "(nvgpu)" in text,
        "compute_cap": by_name(*screen.names),
        "wsl": True,
    }


@reads("nvsmi-qx-*.xml")
def _xml(text: str) -> Mapping[str, Any]:
    log = nvidia_smi.parse_xml(text)
    assert log is not None
    return {
        "driver": str(log.driver),
        "cuda": log.cuda,
        "gpus": [device.name for device in log.devices],
        "architectures": [entry.architecture for entry in log.devices],
        "mig": [device.mig for device in log.devices],
        "vgpu": [item.virtual for item in log.devices],
    }


@reads("nvsmi-query-*.csv.txt")
def _query(text: str) -> Mapping[str, Any]:
    rows = nvidia_smi.parse_query(text)
    return {
        "rows": [list(row.values()) for row in rows],
        "compute_caps": [row.get("compute_cap") for row in rows],
        "compute_cap": by_name(*(row["name"] or "" for row in rows[:1])),
        "mig": any(row.get("mig.mode.current") == "Enabled" for row in rows),
        "jetson": any("(nvgpu)" in (row["name"] or "") for row in rows),
        "vgpu": any((row["name"] or "").startswith("GRID ") for row in rows),
    }


@reads("nvsmi-L-*.txt")
def _list(text: str) -> Mapping[str, Any]:
    devices = nvidia_smi.parse_list(text)
    return {
        "gpus": [name for name, _, _ in devices],
        "mig_slices": sum(len(parts) for _, _, parts in devices),
    }


@reads("nvsmi-err-*.txt")
def _complaint(text: str) -> Mapping[str, Any]:
    complaint = nvidia_smi.complaint(text)
    assert complaint is not None
    return {"error": as_said(complaint.code)}


@reads("torch-*.txt")
def _torch(text: str) -> Mapping[str, Any]:
    complaint = torch_messages.complaint(text)
    assert complaint is not None
    return {
        "error": as_said(complaint.code),
        "found_cuda": complaint.cuda,
        "compute_cap": str(complaint.capability),
    }


@reads("proc-driver-nvidia-version-*.txt")
def _driver_file(text: str) -> Mapping[str, Any]:
    return {"driver": str(nvidia.parse_driver_file(text)), "jetson": "buildbrain@mobile" in text}


@reads("sys-module-nvidia-version.txt")
def _module_file(text: str) -> Mapping[str, Any]:
    return {"driver": text.strip()}


@reads("proc-version-wsl2.txt")
def _kernel_file(text: str) -> Mapping[str, Any]:
    return {"wsl": system.is_wsl(text)}


@reads("rocm_agent_enumerator-*.txt")
def _enumerator(text: str) -> Mapping[str, Any]:
    return {"gfx": [item.gfx for item in amd.parse_enumerator(text)]}


@reads("rocminfo-mi250.txt")
def _rocminfo(text: str) -> Mapping[str, Any]:
    agents = amd.parse_rocminfo(text)
    return {"gfx": [agent.gfx for agent in agents], "names": [agent.name for agent in agents]}


@reads("amd-smi-static-asic.txt")
def _amd_smi(text: str) -> Mapping[str, Any]:
    agents = amd.parse_amd_smi(text)
    return {"gfx": [agent.gfx for agent in agents], "names": [agent.name for agent in agents]}


@reads("amd-smi-list.json")
def _amd_smi_list(text: str) -> Mapping[str, Any]:
    nodes = amd.parse_amd_smi_list(text)
    return {"gpus": len(nodes), "node_ids": list(nodes)}


@reads("kfd-*.properties.txt")
def _properties(text: str) -> Mapping[str, Any]:
    agent = amd.parse_properties(text)
    return {"gfx": agent and agent.gfx}


@reads("env-hsa-override.txt")
def _override(text: str) -> Mapping[str, Any]:
    value = text.strip().partition("=")[2]
    return {"override": value, "gfx": amd.parse_override(value)}


@reads("sw_vers-*.txt")
def _sw_vers(text: str) -> Mapping[str, Any]:
    macos = system.parse_sw_vers(text)
    assert macos is not None
    mps = {release.line: macos >= release.macos.mps for release in CATALOGUE.releases}
    return {"macos": str(macos), "mps_2_15": mps["2.15"], "mps_2_14": mps["2.14"]}


@reads("system_profiler-*.json")
def _profiler(text: str) -> Mapping[str, Any]:
    model = system.parse_profiler(text)
    return {"gpu": model, "apple_silicon": (model or "").startswith("Apple")}


@reads("xpu-smi-discovery-*.json")
def _xpu_smi(text: str) -> Mapping[str, Any]:
    found = intel.parse_xpu_smi(text)
    families = [pci.intel_family(item.device) for item in found]
    return {
        "names": [item.name for item in found],
        "supported": all(family is not None and family.xpu for family in families),
    }


@reads("sys-bus-pci-intel-display.txt")
def _bus(text: str) -> Mapping[str, Any]:
    return {
        "intel_display": [
            f"0x{display.device}" for display in pci.parse_displays(text) if display.vendor == "8086"
        ]
    }


@reads("ldd-version-*.txt")
def _ldd(text: str) -> Mapping[str, Any]:
    libc = system.parse_libc(text)
    assert libc is not None
    wheels = libc.family == "glibc" and libc.version >= CATALOGUE.releases[0].glibc
    return {"libc": libc.family, "version": str(libc.version), "manylinux_2_28": wheels}


CATALOGUE = parse(
    Table.from_toml(
        (Path(probe.__file__).parents[2] / "catalogue" / "data" / "catalogue.toml").read_text(),
        "catalogue.toml",
    )
)


def by_name(*names: str) -> str | None:
    capability = CATALOGUE.find_capability(names[0]) if names else None
    return str(capability) if capability else None


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_sample_is_read_for_what_it_says(name: str) -> None:
    wanted = expected(name)
    if "compute_cap" in wanted:
        # 8.7 (from table by model; smi gives none)
        wanted["compute_cap"] = wanted["compute_cap"].split()[0]
    read = READERS[name](sample(name))
    assert {key: read[key] for key in wanted} == wanted


def test_a_permission_that_is_missing_is_not_a_card_that_is_missing(tmp_path: Path) -> None:
    said = Says(sample("rocminfo-err-permission.txt"), code=1)
    host = probed(tmp_path, tools={"rocminfo": said})
    assert host.amd == Amd(status=Status.UNREADABLE)
    assert [as_said(problem.code) for problem in host.problems] == [
        expected("rocminfo-err-permission.txt")["error"]
    ]


def test_a_jetson_is_known_by_its_release_file(tmp_path: Path) -> None:
    host = probed(tmp_path, {"/etc/nv_tegra_release": sample("jetson-nv_tegra_release-r32.txt")})
    wanted = expected("jetson-nv_tegra_release-r32.txt")
    l4t = WrittenVersion(wanted["l4t"])
    assert host.nvidia == Nvidia(status=Status.UNREADABLE, tegra=wanted["jetson"], l4t=l4t)
    said = f"this is a Jetson with Jetson Linux (L4T) {l4t} (JetPack {wanted['jetpack']})"
    assert said in [problem.message for problem in host.problems]


def test_a_jetson_is_known_by_its_device_tree(tmp_path: Path) -> None:
    host = probed(tmp_path, {"/proc/device-tree/model": sample("jetson-device-tree-model.bin")})
    (board,) = host.nvidia.devices
    assert (host.nvidia.status, host.nvidia.tegra) == (Status.FOUND, True)
    assert board.name == expected("jetson-device-tree-model.bin")["model"]
    assert CATALOGUE.find_capability(board.name) == (8, 7)


def test_wsl_has_its_tool_beside_the_drivers_libraries(tmp_path: Path) -> None:
    files = dict.fromkeys(sample("wsl2-listing.txt").split(), "")
    tools = Tools({})
    host = probed(tmp_path, {**files, "/proc/version": sample("proc-version-wsl2.txt")}, tools)
    assert host.wsl
    assert EXPECTED["wsl2-listing.txt"]["expect"]["smi_path"] in {command.argv[0] for command in tools.asked}


def test_a_tool_without_a_device_is_no_device(tmp_path: Path) -> None:
    host = probed(tmp_path, tools={"xpu-smi": Says(sample("xpu-smi-err-no-device.txt"), code=1)})
    assert host.intel == Intel()


SEEN_ON_A_MACHINE = {
    "rocminfo-err-permission.txt",
    "jetson-nv_tegra_release-r32.txt",
    "jetson-device-tree-model.bin",
    "wsl2-listing.txt",
    "xpu-smi-err-no-device.txt",
}


def test_every_sample_is_read_by_a_test() -> None:
    assert {*READERS, *SEEN_ON_A_MACHINE} == set(EXPECTED)
