"""What the probe says of AMD's GPUs: the kernel first, then tools that a variable can make lie."""

from pathlib import Path

import pytest
from tests.support.machine import Says, Tools, kfd, pci, probed, sample

from torchenv.host.model import Amd, AmdDevice, Problem, Status

PERMISSION = Says(sample("rocminfo-err-permission.txt"), code=1)


def rocminfo(*gfx: str) -> str:
    agents = ["Agent 1\n  Name:                    AMD Ryzen 9\n  Device Type:             CPU\n"]
    agents += [
        f"Agent {number}\n  Name:                    {name}\n  Marketing Name:          Card {name}\n"
        f"  Device Type:             GPU\n"
        for number, name in enumerate(gfx, start=2)
    ]
    return "".join(agents)


def test_the_processor_is_no_gpu_and_a_small_part_does_not_hide_the_card(tmp_path: Path) -> None:
    tools = {
        "rocminfo": rocminfo("gfx1036", "gfx1200"),
        "rocm_agent_enumerator": "gfx000\ngfx1036\ngfx1200\n",
    }
    host = probed(tmp_path, kfd(0, 100306, 120000), tools)
    assert host.amd == Amd(
        status=Status.FOUND,
        devices=(
            AmdDevice(index=0, name="Card gfx1036", gfx="gfx1036", integrated=True),
            AmdDevice(index=1, name="Card gfx1200", gfx="gfx1200"),
        ),
    )
    assert host.problems == ()


def test_where_the_kernel_speaks_the_slow_tools_are_not_asked(tmp_path: Path) -> None:
    tools = Tools({})
    probed(tmp_path, kfd(0, 120000), tools)
    assert not {"amd-smi", "rocm_agent_enumerator"} & {command.argv[0] for command in tools.asked}


def test_a_mask_leaves_what_it_names_and_is_told(tmp_path: Path) -> None:
    variables = {"HIP_VISIBLE_DEVICES": "0"}
    host = probed(tmp_path, kfd(0, 100306, 120000), variables=variables)
    assert [device.visible for device in host.amd.devices] == [True, False]
    message = (
        "HIP_VISIBLE_DEVICES=0 leaves GPU 0 (AMD GPU gfx1036, gfx1036)"
        " and hides GPU 1 (AMD GPU gfx1200, gfx1200)"
    )
    assert host.problems == (Problem("devices-masked", "HIP_VISIBLE_DEVICES", message),)


@pytest.mark.parametrize(
    ("variables", "visible"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [False, False, True]),
        ({"ROCR_VISIBLE_DEVICES": "1"}, [False, True, False]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, [False, False, True]),
        ({"CUDA_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "0"}, [True, False, False]),
    ],
)
def test_masks_count_among_what_the_one_before_leaves(
    tmp_path: Path, variables: dict[str, str], visible: list[bool]
) -> None:
    host = probed(tmp_path, kfd(0, 90402, 90402, 90402), variables=variables)
    assert [device.visible for device in host.amd.devices] == visible


def test_a_mask_may_name_a_card_by_its_unique_number(tmp_path: Path) -> None:
    files = kfd(0, 90402, 90402)
    for node, unique in ((1, 0xABCDEF0123456789), (2, 0x1122334455667788)):
        files[f"/sys/class/kfd/kfd/topology/nodes/{node}/properties"] += f"unique_id {unique}\n"
    host = probed(tmp_path, files, variables={"ROCR_VISIBLE_DEVICES": "GPU-1122334455667788"})
    assert [device.visible for device in host.amd.devices] == [False, True]


def test_the_kernel_knows_better_than_the_override(tmp_path: Path) -> None:
    variables = {"HSA_OVERRIDE_GFX_VERSION": "9.0.0"}
    host = probed(tmp_path, kfd(0, 110501), {"rocminfo": rocminfo("gfx900")}, variables)
    (part,) = host.amd.devices
    assert part == AmdDevice(index=0, name="Card gfx900", gfx="gfx1151", override="gfx900", integrated=True)
    message = (
        "HSA_OVERRIDE_GFX_VERSION=9.0.0 makes ROCm see gfx900 where the kernel names gfx1151; using gfx1151"
    )
    assert host.problems == (Problem("gfx-override", "HSA_OVERRIDE_GFX_VERSION", message),)


def test_an_override_makes_the_tools_useless_for_what_a_gpu_is(tmp_path: Path) -> None:
    variables = {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}
    host = probed(tmp_path, tools={"rocminfo": rocminfo("gfx1100")}, variables=variables)
    assert host.amd.devices == (AmdDevice(index=0, name="Card gfx1100", gfx=None, override="gfx1100"),)
    assert [problem.code for problem in host.problems] == ["gfx-override"]


def test_an_override_that_says_the_truth_is_no_problem(tmp_path: Path) -> None:
    host = probed(tmp_path, kfd(0, 100300), variables={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})
    assert host.amd.devices[0].override is None
    assert host.problems == ()


@pytest.mark.parametrize(
    ("tool", "text", "device"),
    [
        (
            "rocminfo",
            sample("rocminfo-mi250.txt"),
            AmdDevice(index=0, name="AMD Instinct MI250X/MI250", gfx="gfx90a"),
        ),
        (
            "amd-smi static --asic",
            sample("amd-smi-static-asic.txt"),
            AmdDevice(index=0, name="AMD Instinct MI60 / MI50", gfx="gfx906"),
        ),
        (
            "rocm_agent_enumerator",
            "gfx000\ngfx1100\n",
            AmdDevice(index=0, name="AMD GPU gfx1100", gfx="gfx1100"),
        ),
        ("amd-smi list --json", sample("amd-smi-list.json"), AmdDevice(index=0, name="AMD GPU 0")),
    ],
)
def test_a_tool_stands_in_for_the_kernel(tmp_path: Path, tool: str, text: str, device: AmdDevice) -> None:
    host = probed(tmp_path, tools={tool: text})
    assert host.amd == Amd(status=Status.FOUND, devices=(device,))


def test_a_kernel_that_can_be_read_needs_no_permission(tmp_path: Path) -> None:
    host = probed(tmp_path, kfd(0, 110000), {"rocminfo": PERMISSION})
    assert [device.gfx for device in host.amd.devices] == ["gfx1100"]
    assert [problem.code for problem in host.problems] == ["kfd-permission"]


def test_a_card_without_its_driver_is_unreadable(tmp_path: Path) -> None:
    host = probed(tmp_path, pci("0000:03:00.0 1002:744c"))
    assert host.amd == Amd(status=Status.UNREADABLE)
    message = (
        "an AMD GPU (1002:744c) is in this machine and unknown to the driver"
        " (not in /sys/class/kfd/kfd/topology/nodes)"
    )
    assert host.problems == (Problem("kfd-missing", "PCI", message),)


def test_a_part_of_the_processor_without_a_driver_is_named_and_blocks_nothing(tmp_path: Path) -> None:
    host = probed(tmp_path, pci("0000:12:00.0 1002:164e"))
    part = AmdDevice(index=0, name="AMD integrated graphics gfx1036", gfx="gfx1036", integrated=True)
    assert host.amd == Amd(status=Status.FOUND, devices=(part,))
    assert [problem.code for problem in host.problems] == ["kfd-missing"]


def test_an_accelerator_of_the_data_centre_is_a_card_although_it_holds_a_processor(tmp_path: Path) -> None:
    # MI300A
    host = probed(tmp_path, kfd(0, 90402))
    assert [(device.gfx, device.integrated) for device in host.amd.devices] == [("gfx942", False)]
