"""What is not known of a machine, what settles it, and what was seen and cannot be read."""

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version
from tests.plan.hosts import amd, choice, codes, linux, nvidia, planned, recorded, warned

from torchenv.catalogue import resources
from torchenv.errors import InputError
from torchenv.host.model import (
    Amd,
    AmdDevice,
    Capability,
    Host,
    Intel,
    IntelDevice,
    Nvidia,
    NvidiaDevice,
    Problem,
    SeenEnvironment,
    Status,
    WrittenVersion,
)
from torchenv.plan import Outcome, Plan, Question, Wish, resolve

UNKNOWN_CARD = ("NVIDIA Graphics Device", None)
V100 = ("Tesla V100-PCIE-32GB", None)


def test_a_capability_by_hand_fills_in_unknown_ones_only() -> None:
    two = linux(nvidia=nvidia("580.82.07", V100, UNKNOWN_CARD))
    plan = planned(two, capability=Capability(8, 9))
    assert choice(plan) == "2.14.1-cu126-py3.12"
    assert codes(plan, "2.15.0")["cu132"] == "capability-unsupported"


def test_a_capability_by_hand_that_fills_in_nothing_is_ignored_and_said_so() -> None:
    plan = planned(linux(nvidia=nvidia("580.82.07", V100)), capability=Capability(8, 9))
    assert choice(plan) == "2.14.1-cu126-py3.12"
    said = "ignoring --capability 8.9: that of Tesla V100-PCIE-32GB (7.0) is known"
    assert warned(plan)["capability-known"] == said


def test_without_devices_the_plan_is_for_a_machine_that_is_not_here() -> None:
    server = linux(nvidia=nvidia("580.82.07", V100))
    plan = planned(server, devices=(), backends=("cu132",), by_hand=True, capability=Capability(8, 9))
    assert choice(plan) == "2.15.0-cu132-py3.12"
    assert plan.build is not None
    assert plan.build.unproven
    assert [(device.name, device.served) for device in plan.devices] == [("Tesla V100-PCIE-32GB", False)]


def test_without_devices_and_without_a_backend_the_plan_is_for_the_cpu() -> None:
    unread = Problem("no-devices", "PCI", "cannot be asked", vendor="nvidia")
    broken = linux(nvidia=Nvidia(status=Status.UNREADABLE), problems=(unread,))
    plan = planned(broken, devices=())
    assert choice(plan) == "2.15.0-cpu-py3.12"
    assert warned(plan).keys() == {"no-device"}


def test_devices_that_name_none_of_the_host_are_refused() -> None:
    with pytest.raises(InputError, match="--devices 7 names no device of this host"):
        planned("rtx-4090-driver-580", devices=(7,))


def test_an_unknown_nvidia_card_behind_an_old_driver_is_told_of_the_driver_and_of_the_flags() -> None:
    plan = planned(linux(nvidia=nvidia("570.158.01", UNKNOWN_CARD)))
    assert plan.outcome is Outcome.BLOCKED
    assert plan.hint is not None
    assert "driver 580 or newer allows torch 2.15" in plan.hint
    # On this driver cu132 is refused for a reason that is known.
    flags = "name the capability with --capability 8.9 (as it is), or choose a build with --backend cu126"
    assert flags in plan.hint
    assert "--accept-cpu" in plan.hint


def test_an_unknown_card_of_amd_is_not_told_of_a_capability() -> None:
    plan = planned(linux(amd=amd(AmdDevice(index=0, name="AMD Radeon Graphics"))))
    assert plan.outcome is Outcome.BLOCKED
    assert plan.hint is not None
    assert "choose a build with --backend rocm7.14" in plan.hint
    assert "--capability" not in plan.hint
    assert "--capability" not in " ".join(rejection.message for rejection in plan.rejected)


def test_an_unknown_card_of_intel_is_not_told_of_a_capability() -> None:
    plan = planned(linux(intel=Intel(status=Status.FOUND, devices=(IntelDevice(index=0, name="Intel GPU"),))))
    assert plan.outcome is Outcome.BLOCKED
    assert plan.hint is not None
    assert "choose a build with --backend xpu" in plan.hint
    assert "--capability" not in plan.hint


def test_an_unknown_card_among_cards_that_are_at_odds_is_told_of_the_flags_too() -> None:
    rtx = ("NVIDIA GeForce RTX 5090", "12.0")
    plan = planned(linux(nvidia=nvidia("580.95.05", rtx, UNKNOWN_CARD)))
    assert {rejection.code for rejection in plan.rejected} >= {"devices-conflict", "capability-unknown"}
    assert plan.hint == (
        "choose with --devices 0;"
        " name the capability with --capability 8.9 (as it is), or choose a build with --backend cu132"
    )


def test_a_hint_keeps_what_else_was_asked_for() -> None:
    flags = ("--capability", "7.0", "--backend", "cu132", "--devices", "none")
    plan = planned(
        "rtx-4090-driver-580",
        capability=Capability(7, 0),
        backends=("cu132",),
        by_hand=True,
        devices=(),
        program=("torchenv", "--root", "/w"),
        flags=flags,
    )
    assert plan.hint == (
        "take torch 2.14.1 (cu126) with"
        " `torchenv --root /w create 2.14.1 --capability 7.0 --devices none --backend cu126`"
    )


@pytest.mark.parametrize("container", [True, False])
def test_a_driver_that_cannot_change_is_told_of_every_way_around(*, container: bool) -> None:
    host = linux(nvidia=nvidia("470.256.02", ("NVIDIA A100-SXM4-80GB", "8.0")), container=container)
    plan = planned(host)
    assert plan.outcome is Outcome.BLOCKED
    assert plan.hint is not None
    assert "driver 580 or newer allows torch 2.15; driver 525.60.13 or newer allows torch 2.14" in plan.hint
    assert "--accept-cpu" in plan.hint
    assert ("update the driver on the host of this container" in plan.hint) is container


def test_a_refusal_carries_what_is_needed_what_was_found_and_the_device() -> None:
    plan = planned("h100-driver-550")
    first = plan.rejected[0]
    assert (first.code, first.needed, first.device) == ("driver-too-old", "580", None)
    assert first.found == str(recorded("h100-driver-550").nvidia.driver)
    assert first.message == f"needs driver 580 or newer, this host has {first.found}"
    card = next(
        rejection
        for rejection in planned("gtx-1080-ti-beside-rtx-4090").rejected
        if rejection.code == "capability-unsupported"
    )
    assert (card.needed, card.found, card.device) == ("7.5", "6.1", 1)
    assert plan.to_document()["opens"] == "driver 580 or newer allows torch 2.15"


BESIDE = linux(
    nvidia=nvidia("580.95.05", ("NVIDIA GeForce RTX 4090", "8.9")),
    amd=amd(AmdDevice(index=0, name="AMD Radeon RX 7900 XTX", gfx="gfx1100")),
)


def test_the_profile_settles_which_of_two_makers_is_used() -> None:
    plan = planned(BESIDE, backends=("cu132",))
    assert choice(plan) == "2.15.0-cu132-py3.12"
    assert warned(plan)["device-unused"] == (
        "AMD Radeon RX 7900 XTX will not be used: the backend was chosen in the profile"
    )


def test_a_profile_that_names_builds_for_both_makers_settles_nothing() -> None:
    plan = planned(BESIDE, backends=("cu132", "rocm7.14"))
    assert {rejection.code for rejection in plan.rejected} == {"devices-conflict"}


def test_a_card_that_cannot_be_read_is_explained_by_what_is_said_of_its_own_maker() -> None:
    host = linux(
        amd=Amd(status=Status.UNREADABLE),
        problems=(
            Problem("smi-idle", "nvidia-smi", "the NVIDIA driver is not loaded", vendor="nvidia"),
            Problem("kfd-missing", "PCI", "an AMD GPU (1002:74a1) is unknown to the driver", vendor="amd"),
        ),
    )
    plan = planned(host)
    said = "AMD hardware was seen and cannot be read: an AMD GPU (1002:74a1) is unknown to the driver"
    assert plan.why == (said,)
    assert plan.hint == (
        "fix the driver, then run again; or choose a build with --backend rocm7.14; or go on without it:"
        " --accept-cpu"
    )


@pytest.mark.parametrize("driver", ["540.4.0", None])
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_jetson_of_jetpack_6_gets_no_build_of_an_index_not_even_by_hand(
    driver: str | None, *, by_hand: bool
) -> None:
    board = Nvidia(
        status=Status.FOUND,
        driver=WrittenVersion(driver) if driver else None,
        tegra=True,
        l4t=WrittenVersion("36.4.3"),
        devices=(NvidiaDevice(index=0, name="Orin (nvgpu)", compute_capability=Capability(8, 7)),),
    )
    host = replace(linux(nvidia=board), machine="aarch64")
    host = replace(host, pythons=tuple(replace(python, machine="aarch64") for python in host.pythons))
    plan = planned(host, backends=("cu132",), by_hand=by_hand)
    assert plan.outcome is Outcome.BLOCKED
    assert "Jetson Linux 36.4.3" in plan.why[0]
    assert codes(plan, "2.15.0")["cu132"] == "platform-unsupported"


def test_a_card_that_is_only_known_by_its_name_is_told_how_a_newer_torch_is_built() -> None:
    plan = planned(linux(amd=amd(AmdDevice(index=0, name="AMD Radeon VII"))))
    assert choice(plan) == "2.14.1-rocm7.2-py3.12"
    assert "PYTORCH_ROCM_ARCH=gfx906" in warned(plan)["build-from-source"]


def test_the_active_environment_of_the_manifest_comes_before_that_of_the_shell() -> None:
    shell = SeenEnvironment(path="/other/.venv", python=Version("3.12.4"), active=True)
    manifest = SeenEnvironment(path="/p/.venv", python=Version("3.11.9"), torch=Version("2.14.1+cu130"))
    host = replace(linux("3.13.1", "3.12.7", "3.11.9"), environments=(shell,))
    wish = Wish(version="2.15", distributed=True)
    ask = Question(host=host, wish=wish, catalogue=resources.catalogue(), active=manifest)
    plan = resolve(ask)
    assert choice(plan) == "2.15.0-cpu-py3.11"
    assert plan.advice.verdict == "upgrade-at-checkpoint-boundary"
    assert resolve(replace(ask, active=None)).advice.verdict == "upgrade"


def test_the_python_of_an_environment_that_is_copied_comes_before_that_of_the_active_one() -> None:
    active = SeenEnvironment(path="/p/.venv", python=Version("3.12.4"), torch=Version("2.14.1"))
    host = linux("3.13.1", "3.12.7", "3.11.9")
    ask = Question(
        host=host, wish=Wish(version="2.15"), catalogue=resources.catalogue(), active=active, like="3.11"
    )
    plan = resolve(ask)
    assert choice(plan) == "2.15.0-cpu-py3.11"
    assert {passed.why for passed in plan.pythons} == {"Python 3.11 matches --like"}


@pytest.mark.parametrize("gfx", ["gfx900", "gfx906"])
def test_a_build_whose_kernels_are_in_doubt_is_taken_with_a_warning(gfx: str) -> None:
    plan = planned(linux(amd=amd(AmdDevice(index=0, name="AMD Instinct", gfx=gfx))))
    assert choice(plan) == "2.14.1-rocm7.2-py3.12"
    assert f"lists no kernels for {gfx}" in warned(plan)["kernels-doubtful"]
    assert "kernels-doubtful" not in warned(planned("rx-7900-xtx", "2.14"))


@pytest.mark.parametrize(("compiles", "named"), [(True, True), (False, False)])
def test_windows_is_told_of_its_triton_where_torch_compile_is_wanted(*, compiles: bool, named: bool) -> None:
    windows = replace(recorded("h100-windows-566"), nvidia=nvidia("580.95", ("NVIDIA L4", "8.9")))
    plan = planned(windows, compiles=compiles)
    assert choice(plan) is not None
    assert ("triton-windows" in warned(plan).get("triton-missing", "")) is named


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("NVIDIA H100L-2-24C", "2.15.0-cu132-py3.12"),
        ("GRID A100D-80C", "2.15.0-cu132-py3.12"),
        ("GRID V100DX-32C", "2.14.1-cu126-py3.12"),
        ("NVIDIA RTX6000-Ada-48C", "2.15.0-cu132-py3.12"),
        ("GRID P40-24Q", "2.14.1-cu126-py3.12"),
    ],
)
def test_a_virtual_gpu_is_known_by_its_name(name: str, environment: str) -> None:
    assert choice(planned(linux(nvidia=nvidia("580.95.05", (name, None))))) == environment


NEXT = """
schema = 1
compiled = "2027-01-04"
[[avoid-python]]
name = "3.14.9"
python = "==3.14.9"
why = "Python 3.14.9 is made up"
source = "made up"
[[release]]
version = "2.16.0"
date = "2026-12-22"
requires-python = ">=3.11"
pythons = ["3.12", "3.13", "3.14"]
preferred-pythons = { default = ["3.14", "3.13"], windows-x86_64 = ["3.13"] }
glibc = "2.28"
macos = { installs = "14.0", mps = "15.0" }
default = { nvidia = "cu136" }
package-index = { linux-x86_64 = "cu136" }
[[release.backend]]
tag = "cu136"
kind = "cuda"
cuda = "13.6"
driver-floor = "cuda13"
codes = { x86_64 = ["8.0", "9.0", "12.0"] }
local = "cu136"
platforms = ["linux-x86_64", "windows-x86_64"]
certainty = "inferred"
source = "made up"
"""


def test_a_release_that_is_not_packaged_is_planned_by_data_alone(tmp_path: Path) -> None:
    own = tmp_path / "catalogue.toml"
    own.write_text(NEXT, encoding="utf-8")
    catalogue = resources.catalogue(own)

    def plan(host: Host) -> Plan:
        return resolve(Question(host=host, wish=Wish(version="latest"), catalogue=catalogue))

    card = nvidia("580.95.05", ("NVIDIA L4", "8.9"))
    assert choice(plan(linux("3.12.7", "3.13.1", nvidia=card))) == "2.16.0-cu136-py3.13"
    assert choice(plan(linux("3.13.1", "3.14.9", nvidia=card))) == "2.16.0-cu136-py3.13"
    older = plan(linux(nvidia=nvidia("580.95.05", ("Tesla T4", "7.5"))))
    assert choice(older) == "2.15.0-cu132-py3.12"
    assert older.rejected[0].message.endswith("its kernels start at 8.0")
