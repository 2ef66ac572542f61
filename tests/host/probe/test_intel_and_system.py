"""What the probe says of Intel's GPUs, Apple's chips, the C library and where it runs."""

from pathlib import Path

import pytest
from tests.support.machine import Says, pci, probed, sample

from torchenv.host.model import Apple, Intel, IntelDevice, Status
from torchenv.host.probe.pci import parse_windows

MAC = {"system": "darwin", "machine": "arm64", "libc": ""}
INTEL_MAC = {**MAC, "machine": "x86_64"}


def test_an_integrated_part_and_a_card_of_intel_are_told_apart(tmp_path: Path) -> None:
    host = probed(tmp_path, pci("0000:00:02.0 8086:7d55", "0000:03:00.0 8086:e20b"))
    assert host.intel == Intel(
        status=Status.FOUND,
        devices=(
            IntelDevice(index=0, name="Intel Arc Graphics (Meteor Lake-H)", xpu=True, integrated=True),
            IntelDevice(index=1, name="Intel Arc B-Series Graphics", xpu=True),
        ),
    )


@pytest.mark.parametrize(
    ("card", "xpu", "integrated"),
    [
        ("0000:00:02.0 8086:3e92", False, True),
        ("0000:00:02.0 8086:ffff", None, True),
        ("0000:03:00.0 8086:ffff", None, False),
        ("0000:03:00.0 8086:56c0", None, False),
        ("0000:29:00.0 8086:0bda", True, False),
    ],
)
def test_only_what_is_documented_is_known_to_be_served(
    tmp_path: Path, card: str, *, xpu: bool | None, integrated: bool
) -> None:
    (device,) = probed(tmp_path, pci(card)).intel.devices
    assert (device.xpu, device.integrated) == (xpu, integrated)


def test_the_tool_of_intel_gives_names_and_stands_in_for_the_bus(tmp_path: Path) -> None:
    text = sample("xpu-smi-discovery-max1100.json")
    host = probed(tmp_path, tools={"xpu-smi": text})
    assert host.intel.devices == (IntelDevice(index=0, name="Intel(R) Data Center GPU Max 1100", xpu=True),)


@pytest.mark.parametrize(
    ("variables", "visible"),
    [
        ({"ZE_AFFINITY_MASK": "1"}, [False, True]),
        ({"ZE_AFFINITY_MASK": "0.1"}, [True, False]),
        ({}, [True, True]),
    ],
)
def test_a_mask_of_level_zero_hides_cards_that_are_alike(
    tmp_path: Path, variables: dict[str, str], visible: list[bool]
) -> None:
    cards = pci("0000:03:00.0 8086:e20b", "0000:04:00.0 8086:e20b")
    host = probed(tmp_path, cards, variables=variables)
    assert [device.visible for device in host.intel.devices] == visible


def test_windows_lists_a_card_once_for_all_its_outputs() -> None:
    line = r"Intel(R) Arc(TM) A770 Graphics|PCI\VEN_8086&DEV_56A0&SUBSYS_10208086&REV_08"
    (card,) = parse_windows(f"{line}\n{line}\n")
    assert (card.vendor, card.device, card.name) == ("8086", "56a0", "Intel(R) Arc(TM) A770 Graphics")


def test_apple_silicon_is_named_by_its_chip(tmp_path: Path) -> None:
    tools = {
        "sysctl": "hw.optional.arm64: 1\nsysctl.proc_translated: 0\nmachdep.cpu.brand_string: Apple M2\n",
        "sw_vers": sample("sw_vers-14.txt"),
    }
    host = probed(tmp_path, tools=tools, python=MAC)
    assert (host.platform, str(host.macos)) == ("darwin-arm64", "14.7.1")
    assert host.apple == Apple(status=Status.FOUND, chip="Apple M2")


def test_an_intel_mac_is_an_intel_mac(tmp_path: Path) -> None:
    sysctl = Says(
        "sysctl.proc_translated: 0\nmachdep.cpu.brand_string: Intel(R) Core(TM) i7\n",
        code=1,
        err="sysctl: unknown oid 'hw.optional.arm64'\n",
    )
    tools: dict[str, str | Says] = {"sysctl": sysctl, "sw_vers": "ProductVersion:\t\t15.5\n"}
    host = probed(tmp_path, tools=tools, python=INTEL_MAC)
    assert (host.platform, host.machine, str(host.macos)) == ("darwin-x86_64", "x86_64", "15.5")
    assert host.apple == Apple()
    assert host.problems == ()


def test_rosetta_is_not_taken_for_an_intel_mac(tmp_path: Path) -> None:
    tools = {
        "sysctl": "sysctl.proc_translated: 1\nmachdep.cpu.brand_string: VirtualApple @ 2.50GHz\n",
        "sw_vers": sample("sw_vers-26.txt"),
        "system_profiler": sample("system_profiler-displays-m3pro.json"),
    }
    host = probed(tmp_path, tools=tools, python=INTEL_MAC)
    assert host.machine == "arm64"
    assert host.apple == Apple(status=Status.FOUND, chip="Apple M3 Pro")
    assert [problem.code for problem in host.problems] == ["rosetta"]


def test_the_c_library_is_asked_of_python_and_else_of_its_own_tool(tmp_path: Path) -> None:
    told = probed(tmp_path, python={"system": "linux", "machine": "x86_64", "libc": "glibc 2.28"})
    assert str(told.libc and told.libc.version) == "2.28"
    musl = Says(err=sample("ldd-version-musl.txt"), code=1)
    asked = probed(tmp_path, tools={"ldd": musl}, python={"system": "linux", "machine": "x86_64", "libc": ""})
    assert asked.libc is not None
    assert (asked.libc.family, str(asked.libc.version)) == ("musl", "1.2.5")


@pytest.mark.parametrize(
    ("files", "variables"),
    [
        ({"/.dockerenv": ""}, {}),
        ({"/run/.containerenv": 'engine="podman"'}, {}),
        ({"/proc/1/cgroup": "12:pids:/kubepods/burstable/pod1\n"}, {}),
        ({}, {"container": "lxc"}),
    ],
)
def test_a_container_is_known_by_its_marks(
    tmp_path: Path, files: dict[str, str], variables: dict[str, str]
) -> None:
    assert probed(tmp_path, files, variables=variables).container
    assert not probed(tmp_path / "bare", {"/proc/1/cgroup": "0::/init.scope\n"}).container
