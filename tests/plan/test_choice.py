"""The rules of the choice, one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from tests.catalogue.test_own_file import NEXT
from tests.plan.hosts import (
    CATALOGUE,
    amd,
    choice,
    codes,
    linux,
    nvidia,
    planned,
    recorded,
    warned,
)

from torchenv.catalogue import resources
from torchenv.errors import InputError
from torchenv.host.model import (
    Amd,
    AmdDevice,
    Capability,
    Intel,
    IntelDevice,
    NvidiaDevice,
    Problem,
    SeenEnvironment,
    Status,
)
from torchenv.plan import IndexFacts, Outcome, Question, Wish, resolve

RTX_4090 = ("NVIDIA GeForce RTX 4090", "8.9")
GTX_1060 = ("NVIDIA GeForce GTX 1060 6GB", "6.1")


@pytest.mark.parametrize(
    ("driver", "name"),
    [("579.99", "2.14.1-cu126-py3.12"), ("580.00", "2.15.0-cu132-py3.12")],
)
def test_drivers_are_compared_as_numbers(driver: str, name: str) -> None:
    assert choice(planned(linux(nvidia=nvidia(driver, ("NVIDIA H100 80GB HBM3", "9.0"))))) == name


def test_under_wsl_the_driver_is_judged_by_the_column_of_windows() -> None:
    # 527 is above the floor of Linux for CUDA 12 (525.60.13) and below that of Windows (528.33).
    host = linux(nvidia=nvidia("527.41", ("NVIDIA GeForce RTX 3060", "8.6")))
    assert choice(planned(host)) == "2.14.1-cu126-py3.12"
    assert planned(replace(host, wsl=True)).outcome is Outcome.BLOCKED


def test_a_card_decides_though_the_driver_would_do() -> None:
    plan = planned(linux(nvidia=nvidia("580.95.05", GTX_1060)), "latest", packages=("torchvision",))
    assert plan.build is not None
    assert plan.build.requirements == ("torch==2.14.1+cu126", "torchvision==0.29.1")
    assert all(word in " ".join(plan.why) for word in ("6.1", "2.14", "7.5"))
    assert not {"cu132", "cu134"} & {plan.build.backend.tag}


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("Quadro RTX 6000", "7.5"),
        ("NVIDIA GeForce GTX 780 Ti", "3.5"),
        ("Tesla V100-SXM2-16GB", "7.0"),
    ],
)
def test_a_capability_that_cannot_be_read_comes_from_the_name(name: str, capability: str) -> None:
    unread = planned(linux(nvidia=nvidia("580.95.05", (name, None))))
    read = planned(linux(nvidia=nvidia("580.95.05", (name, capability))))
    assert (unread.outcome, choice(unread)) == (read.outcome, choice(read))


def test_the_flag_fills_in_only_what_the_machine_does_not_say() -> None:
    both = linux(nvidia=nvidia("580.95.05", RTX_4090, ("NVIDIA Graphics Device", None)))
    assert choice(planned(both, capability=Capability(7, 0))) == "2.14.1-cu126-py3.12"
    known = linux(nvidia=nvidia("580.95.05", RTX_4090))
    assert choice(planned(known, capability=Capability(7, 0))) == "2.15.0-cu132-py3.12"


def test_a_backend_by_name_vouches_for_what_is_unknown_with_a_warning() -> None:
    plan = planned("unknown-card-driver-580", backends=("cu132",), by_hand=True)
    assert choice(plan) == "2.15.0-cu132-py3.12"
    assert warned(plan)["vouched"].endswith("not checked, because you chose cu132 by --backend")


def test_a_backend_by_name_never_overrules_a_proven_refusal() -> None:
    plan = planned(linux(nvidia=nvidia("580.95.05", GTX_1060)), backends=("cu132",), by_hand=True)
    assert plan.outcome is Outcome.BLOCKED
    assert plan.hint is not None
    assert plan.hint == (
        "take torch 2.14.1 (cu126) with `torchenv create 2.14.1 --backend cu126`;"
        " plan for another machine, such as the one that an image is for, with --devices none"
    )


def test_a_profile_that_restricts_backends_vouches_for_nothing() -> None:
    assert planned("unknown-card-driver-580", backends=("cu132",)).outcome is Outcome.BLOCKED


def test_a_half_updated_driver_is_no_missing_card() -> None:
    said = "the kernel module is 575.64.03 and the library 580.126: reboot"
    host = linux(
        nvidia=nvidia("575.64.03", status=Status.UNREADABLE),
        problems=(Problem("driver-library-mismatch", "nvidia-smi", said),),
    )
    plan = planned(host)
    assert plan.outcome is Outcome.BLOCKED
    assert all(word in plan.why[0] for word in ("575.64.03", "580.126", "reboot"))
    assert choice(planned(host, backends=("cu132",), by_hand=True)) == "2.15.0-cu132-py3.12"
    assert choice(planned(host, backends=("cpu",), by_hand=True)) == "2.15.0-cpu-py3.12"
    assert choice(planned(host, accept_cpu=True)) == "2.15.0-cpu-py3.12"


def test_a_driver_that_names_no_device_was_not_read() -> None:
    assert planned(linux(nvidia=nvidia("580.95.05"))).outcome is Outcome.BLOCKED


def test_devices_that_a_mask_hides_are_not_considered() -> None:
    gpus = nvidia("580.95.05", RTX_4090, GTX_1060)
    hidden = replace(gpus.devices[1], visible=False)
    host = linux(nvidia=replace(gpus, devices=(gpus.devices[0], hidden)))
    plan = planned(host)
    assert choice(plan) == "2.15.0-cu132-py3.12"
    assert [device.served for device in plan.devices] == [True, False]


def test_naming_no_device_of_the_host_is_wrong_input() -> None:
    with pytest.raises(InputError) as caught:
        planned("rtx-4090-driver-580", devices=(7,))
    assert caught.value.message == "--devices 7 names no device of this host"
    assert caught.value.hint == "name some of 0 (NVIDIA GeForce RTX 4090)"


IGPU = AmdDevice(index=0, name="AMD Radeon Graphics", gfx="gfx1036", integrated=True)
CARD = AmdDevice(index=1, name="AMD Radeon RX 9060 XT", gfx="gfx1200")


def test_an_integrated_part_beside_a_card_is_mentioned_in_any_order() -> None:
    for devices in ((IGPU, CARD), (replace(CARD, index=0), replace(IGPU, index=1))):
        plan = planned(linux(amd=amd(*devices)))
        assert choice(plan) == "2.15.0-rocm7.14-py3.12"
        assert "gfx1036" in warned(plan)["integrated-device"]


def test_an_integrated_part_selected_by_a_mask_is_judged_like_a_card() -> None:
    said = "HIP_VISIBLE_DEVICES=0 leaves GPU 0 (AMD Radeon Graphics, gfx1036) and hides GPU 1"
    host = linux(
        amd=amd(IGPU, replace(CARD, visible=False)),
        problems=(Problem("devices-masked", "HIP_VISIBLE_DEVICES", said),),
    )
    plan = planned(host)
    assert plan.outcome is Outcome.BLOCKED
    told = " ".join((*plan.why, *warned(plan).values()))
    assert "HIP_VISIBLE_DEVICES=0" in told
    assert "gfx1036" in told


@pytest.mark.parametrize("more", [{"devices": (0,)}, {"backends": ("rocm7.14",), "by_hand": True}])
def test_an_integrated_part_selected_by_a_flag_is_judged_like_a_card(more: dict[str, Any]) -> None:
    assert planned(linux(amd=amd(IGPU)), **more).outcome is Outcome.BLOCKED


def test_an_override_that_lies_does_not_change_the_chip() -> None:
    real = AmdDevice(index=0, name="Strix Halo", gfx="gfx1151", integrated=True, override="gfx900")
    assert choice(planned(linux(amd=amd(real)))) == "2.15.0-rocm7.14-py3.12"


def test_an_override_on_a_chip_that_nothing_serves_stops_unless_it_is_accepted() -> None:
    part = AmdDevice(index=0, name="Radeon 820M", gfx="gfx1153", integrated=True, override="gfx1100")
    plan = planned(linux(amd=amd(part)))
    assert plan.outcome is Outcome.BLOCKED
    assert "gfx1153" in plan.why[0]
    accepted = planned(linux(amd=amd(part)), accept_override=True)
    assert choice(accepted) == "2.15.0-rocm7.14-py3.12"
    assert warned(accepted)["override-accepted"] == (
        "Radeon 820M (gfx1153) runs as gfx1100, which is unsupported"
    )


def test_a_card_of_unknown_gfx_comes_from_its_name_or_blocks() -> None:
    named = AmdDevice(index=0, name="AMD Radeon RX 7900 XTX")
    assert choice(planned(linux(amd=amd(named)))) == "2.15.0-rocm7.14-py3.12"
    nameless = AmdDevice(index=0, name="AMD device 0x1234")
    assert codes(planned(linux(amd=amd(nameless))), "2.15.0")["rocm7.14"] == "capability-unknown"


def test_a_card_whose_driver_cannot_be_asked_blocks_also_beside_another_maker() -> None:
    host = linux(nvidia=nvidia("580.95.05", RTX_4090), amd=Amd(status=Status.UNREADABLE))
    assert planned(host).outcome is Outcome.BLOCKED
    assert choice(planned(host, backends=("cu132",), by_hand=True)) == "2.15.0-cu132-py3.12"


def test_an_intel_card_that_nobody_knows_needs_a_word() -> None:
    card = Intel(status=Status.FOUND, devices=(IntelDevice(index=0, name="Intel device 0xffff"),))
    assert codes(planned(linux(intel=card)), "2.15.0")["xpu"] == "capability-unknown"
    assert choice(planned(linux(intel=card), backends=("xpu",), by_hand=True)) == "2.15.0-xpu-py3.12"


def test_every_build_of_the_release_is_accounted_for() -> None:
    plan = planned("rtx-4090-driver-580")
    assert codes(plan) == {
        "cu134": "not-preferred",
        "rocm7.14": "gfx-unsupported",
        "rocm10.0": "gfx-unsupported",
        "xpu": "capability-unsupported",
        "cpu": "not-preferred",
    }


def test_a_backend_that_this_release_lost_is_found_in_the_line_before() -> None:
    plan = planned("rtx-4090-driver-580", backends=("cu126",), by_hand=True)
    assert (plan.outcome, choice(plan)) == (Outcome.FALLBACK, "2.14.1-cu126-py3.12")


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("2.15.0", "2.15.0-cu132-py3.12"),
        ("2.14", "2.14.1-cu130-py3.12"),
        ("2.14.0", "2.14.0-cu130-py3.12"),
        (">=2.13,<2.15", "2.14.1-cu130-py3.12"),
        ("latest", "2.15.0-cu132-py3.12"),
    ],
)
def test_a_line_means_its_newest_patch_and_a_range_its_newest_release(wanted: str, name: str) -> None:
    assert choice(planned("rtx-4090-driver-580", wanted)) == name


@pytest.mark.parametrize(
    ("wish", "message", "hint"),
    [
        ({"version": "2.51"}, "torch 2.51 is not in the catalogue", "did you mean `2.15`?"),
        (
            {"backends": ("cu312",)},
            "`cu312` is not a backend of any release",
            "did you mean `cu132`? torch 2.15.0 has cu132, cu134",
        ),
        (
            {"packages": ("torchvison",)},
            "`torchvison` is not a package of torch's family",
            "did you mean `torchvision`?",
        ),
    ],
)
def test_a_word_that_does_not_exist_is_wrong_input(wish: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        planned("rtx-4090-driver-580", **{"version": "2.15", **wish})
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_companions_come_as_pairs_from_the_same_index() -> None:
    plan = planned("rtx-4090-driver-580", packages=("torchvision", "torchaudio"))
    assert plan.build is not None
    assert plan.build.requirements == ("torch==2.15.0+cu132", "torchvision==0.29.2", "torchaudio==2.11.1")


def test_a_companion_known_to_be_missing_blocks_that_build() -> None:
    plan = planned("rtx-4090-driver-580", "2.14", packages=("torchaudio",), backends=("cu132",), by_hand=True)
    assert codes(plan, "2.14.1")["cu132"] == "companion-missing"
    assert "torchaudio 2.11.0 has no cu132 build" in plan.why[0]


def test_a_companion_that_nobody_knows_is_asked_of_the_index() -> None:
    plan = planned("rx-7900-xtx", packages=("torchaudio",))
    assert choice(plan) == "2.15.0-rocm7.14-py3.12"
    assert "torchaudio 2.11.1 is built for rocm7.14" in warned(plan)["companion-unknown"]


def test_what_an_index_lacks_is_a_reason() -> None:
    host = recorded("rtx-4090-driver-580")
    facts = IndexFacts(lacks={"2.15.0 cu132": {"torchaudio": "its index has only 2.2.0"}})
    wish = Wish(version="2.15", packages=("torchaudio",), fallback=False, backends=("cu132",), by_hand=True)
    plan = resolve(Question(host=host, wish=wish, catalogue=CATALOGUE, indexes=facts))
    assert codes(plan, "2.15.0")["cu132"] == "index-lacks-package"
    assert plan.why[0] == "torch 2.15.0 (cu132): torchaudio: its index has only 2.2.0"


def test_an_interpreter_that_the_index_has_wheels_for_is_taken_once_it_was_asked() -> None:
    host = linux("3.12.7", "3.13.1", nvidia=nvidia("580.95.05", RTX_4090))
    facts = IndexFacts(pythons={"2.15.0 cu132": frozenset({"3.11", "3.12"})})
    plan = resolve(Question(host=host, wish=Wish(version="2.15"), catalogue=CATALOGUE, indexes=facts))
    assert choice(plan) == "2.15.0-cu132-py3.12"


def test_an_unreachable_index_gives_the_package_index_build_where_it_serves() -> None:
    def unreachable(host: str) -> tuple[str | None, str | None, tuple[str, ...]]:
        wish = Wish(version="2.15", fallback=False)
        facts = IndexFacts(unreachable=True)
        plan = resolve(Question(host=recorded(host), wish=wish, catalogue=CATALOGUE, indexes=facts))
        build = plan.build
        return (build.name, build.index, build.requirements) if build else (None, None, ())

    served = ("2.15.0-cu132-py3.12", None, ("torch==2.15.0",))
    assert unreachable("rtx-4090-driver-580") == served
    assert unreachable("cpu-only-linux") == served
    assert unreachable("cpu-only-windows") == ("2.15.0-cpu-py3.12", None, ("torch==2.15.0",))
    assert unreachable("h100-windows-566") == (None, None, ())
    assert unreachable("rx-7900-xtx") == (None, None, ())


def test_the_package_index_build_that_is_taken_is_not_among_those_passed_over() -> None:
    facts = IndexFacts(unreachable=True)
    ask = Question(
        host=recorded("cpu-only-linux"), wish=Wish(version="2.15"), catalogue=CATALOGUE, indexes=facts
    )
    plan = resolve(ask)
    others = ("cpu", "cu134", "rocm7.14", "rocm10.0", "xpu")
    rejected = {item.backend: item.code for item in plan.rejected}
    assert rejected == dict.fromkeys(others, "index-unreachable")
    assert [warning.message for warning in plan.warnings if warning.code == "package-index"] == [
        (
            "PyTorch's index cannot be reached: using the package index's cu132 build,"
            " which computes on the CPU here"
        ),
    ]


def test_a_release_and_a_backend_of_next_year_are_data_alone(tmp_path: Path) -> None:
    own = tmp_path / "catalogue.toml"
    own.write_text(NEXT, encoding="utf-8")
    catalogue = resources.catalogue(own)

    def plan(driver: str) -> str | None:
        host = linux(nvidia=nvidia(driver, RTX_4090))
        return choice(resolve(Question(host=host, wish=Wish(version="latest"), catalogue=catalogue)))

    assert plan("650.10") == "2.16.0-cu140-py3.12"
    assert plan("615.71.09") == "2.15.0-cu132-py3.12"


def test_upgrading_is_advised_with_care_for_checkpoints() -> None:
    active = SeenEnvironment(
        path="/p/.venv", python=Version("3.12.4"), torch=Version("2.14.1+cu130"), active=True
    )
    host = linux(nvidia=nvidia("580.95.05", RTX_4090), environments=(active,))
    assert planned(host).advice.verdict == "upgrade"
    careful = planned(host, distributed=True).advice
    assert careful.verdict == "upgrade-at-checkpoint-boundary"
    assert careful.reasons[1] == ("distributed checkpoints saved by 2.15.0 cannot be read by 2.14.1+cu130")
    assert planned("v100-driver-580").advice.verdict == "stay"


def test_a_plan_shows_the_pip_command_that_does_the_same() -> None:
    document = planned("v100-driver-580", packages=("torchvision",)).to_document()
    assert document["pip"] == (
        "python -m pip install torch==2.14.1+cu126 torchvision==0.29.1"
        " --index-url https://download.pytorch.org/whl/cu126"
    )


def test_the_document_keeps_the_promises_of_the_contract() -> None:
    document = planned("v100-driver-580").to_document()
    assert document["schema"] == "torchenv.plan/1"
    assert document["outcome"] == "fallback"
    assert document["torch"] == "2.14.1"
    assert document["backend"] == "cu126"
    assert document["environment"] == "2.14.1-cu126-py3.12"
    assert document["python"] == {
        "version": "3.12.7",
        "path": "/usr/bin/python3.12",
        "free_threaded": False,
        "source": "found",
    }
    assert document["devices"] == [
        {"vendor": "nvidia", "index": 0, "name": "Tesla V100-SXM2-32GB", "served": True}
    ]
    blocked = planned("gtx-780").to_document()
    assert [blocked[key] for key in ("torch", "backend", "index", "python")] == [None] * 4


def test_a_mig_slice_or_a_hidden_card_keeps_its_place_in_the_document() -> None:
    device = NvidiaDevice(
        index=3, name="NVIDIA A100-SXM4-80GB", compute_capability=Capability(8, 0), mig=True
    )
    host = linux(nvidia=replace(nvidia("580.95.05"), devices=(device,)))
    assert planned(host).to_document()["devices"][0]["index"] == 3
