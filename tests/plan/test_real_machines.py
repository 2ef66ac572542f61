"""What is planned for machines as people have them, when they ask for torch 2.15."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version
from tests.plan.hosts import FOLDER, choice, codes, planned, recorded, warned
from tests.support.terminal import Terminal

from torchenv.host.model import Capability
from torchenv.plan import Outcome

AS_REQUESTED = {
    "rtx-4090-driver-580": "2.15.0-cu132-py3.12",
    "rtx-4090-driver-615": "2.15.0-cu132-py3.12",
    "wsl2-two-rtx-4070": "2.15.0-cu132-py3.12",
    "blackwell-no-smi": "2.15.0-cu132-py3.12",
    "mig-a100": "2.15.0-cu132-py3.12",
    "gb10-aarch64": "2.15.0-cu132-py3.12",
    "thor": "2.15.0-cu132-py3.12",
    "unknown-card-driver-595": "2.15.0-cu132-py3.12",
    "nvidia-beside-raphael-igpu": "2.15.0-cu132-py3.12",
    "rx-7900-xtx": "2.15.0-rocm7.14-py3.12",
    "mi300x": "2.15.0-rocm7.14-py3.12",
    "raphael-igpu-beside-rx-9060": "2.15.0-rocm7.14-py3.12",
    "strix-halo-gfx1151": "2.15.0-rocm7.14-py3.12",
    "phoenix-780m-gfx1103": "2.15.0-rocm7.14-py3.12",
    "arc-b580": "2.15.0-xpu-py3.12",
    "cpu-only-linux": "2.15.0-cpu-py3.12",
    "cpu-only-windows": "2.15.0-cpu-py3.12",
    "login-node": "2.15.0-cpu-py3.12",
    "uhd-630": "2.15.0-cpu-py3.12",
    "raphael-igpu-alone": "2.15.0-cpu-py3.12",
    "m2-macos-15": "2.15.0-cpu-py3.12",
    "python-310-only": "2.15.0-cu132-py3.13",
}

FALLBACK = {
    "v100-driver-580": ("2.14.1-cu126-py3.12", "capability-unsupported"),
    "h100-driver-550": ("2.14.1-cu126-py3.12", "driver-too-old"),
    "h100-windows-566": ("2.14.1-cu126-py3.12", "driver-too-old"),
    "unknown-card-driver-550": ("2.14.1-cu126-py3.12", "driver-too-old"),
    "gtx-1080-ti-beside-rtx-4090": ("2.14.1-cu126-py3.12", "capability-unsupported"),
    "mi50": ("2.14.1-rocm7.2-py3.12", "gfx-unsupported"),
    "m2-macos-14": ("2.14.1-cpu-py3.12", "macos-too-old"),
}

BLOCKED = {
    "gtx-780": "capability-unsupported",
    "gtx-1080-driver-590": "driver-too-new",
    "rtx-5090-driver-570": "driver-too-old",
    "rtx-5090-beside-gtx-1060": "devices-conflict",
    "nvidia-beside-amd": "devices-conflict",
    "unknown-card-driver-580": "capability-unknown",
    "unreadable-driver-mismatch": "driver-unknown",
    "t4g-aarch64": "capability-unsupported",
    "orin-jetpack-6": "platform-unsupported",
    "musl": "libc-unsupported",
    "glibc-2-17": "libc-too-old",
    "intel-mac": "platform-unsupported",
    "m2-macos-13": "macos-too-old",
}


@pytest.mark.parametrize("host", AS_REQUESTED)
def test_a_machine_within_the_floors_gets_the_release_that_was_asked_for(host: str) -> None:
    plan = planned(host)
    assert (plan.outcome, choice(plan)) == (Outcome.AS_REQUESTED, AS_REQUESTED[host])


@pytest.mark.parametrize("host", FALLBACK)
def test_a_machine_below_a_floor_gets_the_line_that_still_serves_it(host: str) -> None:
    plan = planned(host)
    name, code = FALLBACK[host]
    assert (plan.outcome, choice(plan)) == (Outcome.FALLBACK, name)
    assert code in codes(plan, "2.15.0").values()
    assert len(plan.why) == 2


@pytest.mark.parametrize("host", FALLBACK)
def test_no_fallback_makes_a_block_that_names_what_would_serve(host: str) -> None:
    plan = planned(host, fallback=False)
    assert (plan.outcome, plan.build) == (Outcome.BLOCKED, None)
    assert plan.hint is not None
    assert plan.hint.startswith("take it with `torchenv create 2.14`")
    too_old = "driver-too-old" in codes(plan, "2.15.0").values()
    assert ("driver 580 or newer allows torch 2.15" in plan.hint) is too_old
    assert plan.why[-1].startswith("torch 2.14.1 (")


@pytest.mark.parametrize("host", BLOCKED)
def test_a_machine_that_nothing_serves_is_told_why(host: str) -> None:
    plan = planned(host)
    assert (plan.outcome, plan.build) == (Outcome.BLOCKED, None)
    assert BLOCKED[host] in {item.code for item in plan.rejected}
    assert plan.why


@pytest.mark.parametrize("host", ["gtx-780", "t4g-aarch64", "unknown-card-driver-580", "orin-jetpack-6"])
def test_a_card_that_nothing_serves_becomes_cpu_only_when_that_is_accepted(host: str) -> None:
    plan = planned(host, accept_cpu=True)
    assert choice(plan) == "2.15.0-cpu-py3.12"
    names = recorded(host).nvidia.devices[0].name
    assert warned(plan)["accelerator-unused"] == f"{names} will not be used: --accept-cpu was given"
    assert not plan.devices[0].served


def test_accepting_the_cpu_tries_the_fallback_first() -> None:
    assert choice(planned("v100-driver-580", accept_cpu=True)) == "2.14.1-cu126-py3.12"


def test_on_a_mac_accepting_the_cpu_takes_the_newer_release_before_the_fallback() -> None:
    assert choice(planned("m2-macos-14", accept_cpu=True)) == "2.15.0-cpu-py3.12"


def test_a_v100_is_told_in_two_lines_why_it_gets_the_line_before() -> None:
    plan = planned("v100-driver-580")
    assert "\n".join(plan.why) == (
        "torch 2.15.0 (cu132): has no kernels for Tesla V100-SXM2-32GB (compute capability 7.0); "
        "its kernels start at 7.5\n"
        "torch 2.14.1 (cu126) is the newest release that supports it"
    )
    assert plan.build is not None
    assert plan.build.requirements == ("torch==2.14.1+cu126",)
    assert plan.build.index == "https://download.pytorch.org/whl/cu126"


def test_an_old_driver_is_told_which_one_opens_the_release() -> None:
    plan = planned("h100-driver-550")
    assert plan.why == (
        "torch 2.15.0 (cu132): needs driver 580 or newer, this host has 550.54.15",
        "torch 2.14.1 (cu126) is the newest release that supports it; driver 580 or newer allows torch 2.15",
    )


def test_a_blackwell_card_with_an_old_driver_is_shown_the_older_release_and_the_driver() -> None:
    assert planned("rtx-5090-driver-570").hint == (
        "take torch 2.13.0 (cu129) with `torchenv create 2.13.0`; driver 580 or newer allows torch 2.15"
    )


def test_the_newest_cuda_is_taken_only_from_its_paired_driver_on() -> None:
    assert choice(planned("rtx-4090-driver-615", prefer="newest")) == "2.15.0-cu134-py3.12"
    assert choice(planned("rtx-4090-driver-580", prefer="newest")) == "2.15.0-cu132-py3.12"


def test_the_newest_rocm_is_taken_when_it_is_preferred() -> None:
    assert choice(planned("rx-7900-xtx", prefer="newest")) == "2.15.0-rocm10.0-py3.12"


def test_the_card_that_holds_a_plan_back_is_named_with_the_devices_that_open_the_release() -> None:
    plan = planned("gtx-1080-ti-beside-rtx-4090")
    assert warned(plan)["held-back"].endswith("allows torch 2.15.0 (cu132)")
    chosen = tuple(
        device.index
        for device in recorded("gtx-1080-ti-beside-rtx-4090").nvidia.devices
        if device.compute_capability == Capability(8, 9)
    )
    assert f"--devices {chosen[0]}" in warned(plan)["held-back"]
    assert choice(planned("gtx-1080-ti-beside-rtx-4090", devices=chosen)) == "2.15.0-cu132-py3.12"


def test_cards_that_no_single_build_serves_are_told_the_build_of_each() -> None:
    plan = planned("rtx-5090-beside-gtx-1060")
    (why,) = plan.why
    assert why == (
        "no single build supports these devices together: "
        "torch 2.15.0 (cu132) supports 0 (NVIDIA GeForce RTX 5090); "
        "torch 2.14.1 (cu126) supports 1 (NVIDIA GeForce GTX 1060 6GB)"
    )
    assert plan.hint == "choose with --devices 0 or --devices 1"


def test_cards_of_two_makers_are_settled_by_the_backend() -> None:
    plan = planned("nvidia-beside-amd")
    assert plan.hint == "choose with --backend cu132 or --backend rocm7.14"
    settled = planned("nvidia-beside-amd", backends=("rocm7.14",), by_hand=True)
    assert choice(settled) == "2.15.0-rocm7.14-py3.12"
    assert "NVIDIA GeForce RTX 4090" in warned(settled)["device-unused"]
    assert {device.vendor: device.served for device in settled.devices} == {"nvidia": False, "amd": True}


def test_building_from_source_is_named_for_cards_that_lost_their_kernels() -> None:
    assert "PYTORCH_ROCM_ARCH=gfx906" in warned(planned("mi50"))["build-from-source"]


def test_a_mac_below_14_is_shown_the_last_that_installs_and_the_last_with_mps() -> None:
    assert planned("m2-macos-13").hint == (
        "take torch 2.11.0, the newest that installs here, for the CPU with"
        " `torchenv create 2.11.0 --accept-cpu`;"
        " take torch 2.8.0, the newest with MPS here, with `torchenv create 2.8.0`"
    )
    assert choice(planned("m2-macos-13", "2.11.0", accept_cpu=True)) == "2.11.0-cpu-py3.12"
    assert choice(planned("m2-macos-13", "2.8.0")) == "2.8.0-cpu-py3.12"


def test_an_intel_mac_is_told_when_its_wheels_ended() -> None:
    (why,) = planned("intel-mac").why
    assert all(word in why for word in ("macOS", "x86_64", "2.2.2"))


def test_a_host_without_a_device_is_told_how_to_plan_for_another_machine() -> None:
    assert warned(planned("login-node"))["no-device"] == (
        "No GPU found, so this is a CPU plan. For a GPU machine: --backend cu132 (and --capability)"
    )


def test_a_backend_by_name_plans_for_the_machine_it_will_run_on_unproven() -> None:
    plan = planned("login-node", backends=("cu132",), by_hand=True)
    assert plan.build is not None
    assert (plan.build.name, plan.build.unproven) == ("2.15.0-cu132-py3.12", True)
    assert warned(plan)["unproven"] == (
        "planned for the NVIDIA GPU of another machine: the environment is untested until run on one"
    )


def test_a_capability_alone_plans_for_an_nvidia_machine() -> None:
    assert choice(planned("login-node", capability=Capability(7, 0))) == "2.14.1-cu126-py3.12"
    assert choice(planned("login-node", capability=Capability(9, 0))) == "2.15.0-cu132-py3.12"


def test_only_python_310_gives_the_line_before_when_nothing_may_be_fetched() -> None:
    plan = planned("python-310-only", offline=True)
    assert choice(plan) == "2.14.1-cu130-py3.10"
    assert codes(plan, "2.15.0")["cu132"] == "python-too-old"
    fetched = planned("python-310-only")
    assert fetched.build is not None
    assert (fetched.build.python.path, fetched.build.python.source) == (None, "fetch")


@pytest.mark.parametrize(("macos", "asked"), [("13.7", "2.11"), ("13.7.8", "2.12"), ("13.0", "2.15")])
def test_a_mac_that_a_release_installs_on_without_its_gpu_is_shown_that_one(macos: str, asked: str) -> None:
    mac = replace(recorded("m2-macos-13"), macos=Version(macos))
    plan = planned(mac, asked)
    assert plan.outcome is Outcome.BLOCKED
    assert plan.hint == (
        "take torch 2.11.0, the newest that installs here, for the CPU with"
        " `torchenv create 2.11.0 --accept-cpu`;"
        " take torch 2.8.0, the newest with MPS here, with `torchenv create 2.8.0`"
    )


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--no-fallback",),
        ("--backend", "cu132"),
        ("--backend", "cu126", "--no-fallback"),
        ("--backend", "cu132", "--capability", "7.0"),
        ("--backend", "cu132", "--capability", "7.0", "--devices", "none", "--no-fallback"),
        ("--devices", "0", "--no-fallback"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("host", [*BLOCKED, *FALLBACK, "login-node"])
def test_every_command_that_a_hint_names_works_there_and_then(
    tmp_path: Path, host: str, words: tuple[str, ...]
) -> None:
    terminal = Terminal.within(tmp_path)
    asked = ("--host", FOLDER / f"{host}.json", "--json")
    refused = terminal.type("plan", "2.15", *words, *asked)
    if refused.code == 0:
        return
    assert refused.code in {2, 3}
    hint = (refused.json["hint"] or "") if refused.code == 3 else ""
    for command in re.findall(r"`torchenv create ([^`]*)`", hint):
        assert terminal.type("plan", *shlex.split(command), *asked).code == 0, command
    for flags in re.findall(r"--backend \w[\w.]*|--devices \d[\d,]*", re.sub("`[^`]*`", "", hint)):
        followed = terminal.type("plan", "2.15", *flags.split(), *asked)
        # Whoever has fixed the driver or knows the card goes on; a card that is known to fail does not.
        assert followed.code == 0, flags
