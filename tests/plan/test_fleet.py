"""Targets decided for machines that are not at hand, the one that a machine is, and one plan for a fleet."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.plan.hosts import CATALOGUE, linux, nvidia, recorded

from torchenv.errors import InputError
from torchenv.host.model import Host
from torchenv.lockfile.lockset import LockedTarget
from torchenv.plan import Outcome, Plan, Question, Wish
from torchenv.plan import choice as choices
from torchenv.plan import fleet as fleets
from torchenv.plan.fleet import Fleet, find_kinds, fleet
from torchenv.plan.targets import best, explain_unsupported, fits, plan_target, wish_of
from torchenv.profile.model import Profile, Target, Torch
from torchenv.render.fleet import describe_fleet

PROFILE = Profile(name="team", torch=Torch(version="2.15"))


def decided(**target: Any) -> Plan:
    """Decide for a target on Linux with Python 3.12, unless the test says otherwise."""
    asked = Target(**{"name": "t", "platform": "linux-x86_64", "python": "3.12", **target})
    return plan_target(asked, PROFILE, CATALOGUE, packages=(), torch_index=None)


def choice(plan: Plan) -> str | None:
    return plan.build.name if plan.build else None


@pytest.mark.parametrize(
    ("target", "environment"),
    [
        ({}, "2.15.0-cpu-py3.12"),
        ({"backend": "cu132"}, "2.15.0-cu132-py3.12"),
        ({"backend": "cu126"}, "2.14.1-cu126-py3.12"),
        ({"backend": "cu132", "torch": "2.14"}, "2.14.1-cu132-py3.12"),
        ({"backend": "rocm7.14", "python": "3.14t"}, "2.15.0-rocm7.14-py3.14t"),
        ({"platform": "darwin-arm64"}, "2.15.0-cpu-py3.12"),
        ({"platform": "windows-x86_64", "backend": "cu132"}, "2.15.0-cu132-py3.12"),
        ({"platform": "linux-aarch64", "backend": "cu132"}, "2.15.0-cu132-py3.12"),
        ({"capability": "8.9"}, "2.15.0-cu132-py3.12"),
        ({"capability": "7.0"}, "2.14.1-cu126-py3.12"),
        ({"capability": "gfx942"}, "2.15.0-rocm7.14-py3.12"),
        ({"capability": "gfx906"}, "2.14.1-rocm7.2-py3.12"),
        ({"index": "packages", "backend": "cu132"}, "2.15.0-cu132-py3.12"),
        ({"index": "packages", "platform": "windows-x86_64"}, "2.15.0-cpu-py3.12"),
    ],
)
def test_a_target_is_what_such_a_machine_needs(target: dict[str, str], environment: str) -> None:
    assert choice(decided(**target)) == environment


def test_the_package_indexs_own_build_is_taken_only_where_a_target_says_so() -> None:
    ours, theirs = decided(backend="cu132").build, decided(backend="cu132", index="packages").build
    assert ours is not None
    assert theirs is not None
    assert ours.index == "https://download.pytorch.org/whl/cu132"
    assert (theirs.index, theirs.requirements) == (None, ("torch==2.15.0",))


def test_a_platform_without_wheels_is_told_apart_from_what_cannot_be_met() -> None:
    intel_mac = decided(platform="darwin-x86_64")
    assert intel_mac.outcome is Outcome.BLOCKED
    assert explain_unsupported(intel_mac) == "PyTorch has published no wheel for macOS x86_64 since 2.2.2"
    old_python = decided(python="3.9")
    assert old_python.outcome is Outcome.BLOCKED
    assert explain_unsupported(old_python) is None


def test_an_unknown_platform_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(InputError) as caught:
        decided(platform="linux-x86-64")
    assert str(caught.value) == "target `t`: `linux-x86-64` is not a platform"
    assert caught.value.hint == "did you mean `linux-x86_64`?"


def locked(name: str, torch: str, backend: str, platform: str = "linux-x86_64") -> LockedTarget:
    return LockedTarget(
        name=name, platform=platform, python="3.12", torch=torch, backend=backend, lock="sha256:0"
    )


LOCKED = (
    locked("ci", "2.15.0+cpu", "cpu"),
    locked("v100", "2.14.1+cu126", "cu126"),
    locked("ada", "2.15.0+cu132", "cu132"),
    locked("mac", "2.15.0", "cpu", "darwin-arm64"),
    locked("mac-14", "2.14.1", "cpu", "darwin-arm64"),
)


def chosen(host: str, profile: Profile = PROFILE) -> str | None:
    """The locked target that a recorded host takes."""
    ask = Question(host=recorded(host), wish=wish_of(profile, torch_index=None), catalogue=CATALOGUE)
    fit = best(fits(LOCKED, ask), ask)
    return fit.target.name if fit else None


@pytest.mark.parametrize(
    ("host", "target"),
    [
        ("cpu-only-linux", "ci"),
        ("login-node", "ci"),
        ("rtx-4090-driver-580", "ada"),
        ("v100-driver-580", "v100"),
        ("h100-driver-550", "v100"),
        ("m2-macos-15", "mac"),
        ("m2-macos-14", "mac-14"),
        # An accelerator is never silently lost to the CPU's target, nor is the nearest one taken.
        ("mi300x", None),
        ("rtx-5090-driver-570", None),
        ("cpu-only-windows", None),
    ],
)
def test_a_machine_takes_the_newest_target_that_serves_it(host: str, target: str | None) -> None:
    assert chosen(host) == target


def gathered(*names: str) -> Fleet:
    return fleet({name: recorded(name) for name in names}, wish_of(PROFILE, torch_index=None), CATALOGUE)


def test_a_fleet_has_a_line_for_each_kind_and_for_each_reason_and_the_fewest_targets() -> None:
    found = gathered("v100-driver-580", "rtx-4090-driver-580", "m2-macos-15", "h100-driver-550")
    more = replace(
        found,
        members=(*found.members, *(replace(found.members[1], name=f"ada-{number}") for number in range(6))),
    )
    assert re.sub(r"(?<=\S) {2,}", "  ", describe_fleet(more)) == (
        "hosts  target  torch  backend  names\n"
        "2  cu126  2.14.1  cu126  v100-driver-580, h100-driver-550\n"
        "  v100-driver-580: torch 2.15.0 (cu132): has no kernels for"
        " Tesla V100-SXM2-32GB (compute capability 7.0); its kernels start at 7.5\n"
        "  h100-driver-550: torch 2.15.0 (cu132): needs driver 580 or newer, this host has 550.54.15\n"
        "    driver 580 or newer allows torch 2.15\n"
        "7  cu132  2.15.0  cu132  rtx-4090-driver-580, ada-0, ada-1, ada-2 and 3 more\n"
        "1  cpu-darwin-arm64  2.15.0  cpu  m2-macos-15\n"
        "the fewest targets that support them all: 2\n"
        "  cpu-darwin-arm64 (torch 2.15.0, darwin-arm64, Python 3.12) supports m2-macos-15\n"
        "  cu126 (torch 2.14.1, linux-x86_64, Python 3.12) supports v100-driver-580, rtx-4090-driver-580,"
        " h100-driver-550, ada-0 and 5 more, and holds back rtx-4090-driver-580, ada-0, ada-1, ada-2"
        " and 3 more"
    )


def test_a_machine_that_nothing_serves_is_told_what_would() -> None:
    found = gathered("cpu-only-linux", "rtx-5090-driver-570")
    assert [item.name for item in found.unserved] == ["rtx-5090-driver-570"]
    assert [target.name for target in found.targets] == ["cpu"]
    row = found.to_document()["hosts"][1]
    assert (row["outcome"], row["torch"], row["target"]) == ("blocked", None, None)
    assert row["opens"] == (
        "take torch 2.13.0 (cu129) with `torchenv create 2.13.0`; driver 580 or newer allows torch 2.15"
    )


def test_a_build_for_devices_serves_no_machine_without_them() -> None:
    found = gathered("cpu-only-linux", "mi300x")
    assert {member.name: member.served_by.name for member in found.members if member.served_by} == {
        "cpu-only-linux": "cpu",
        "mi300x": "rocm7-14",
    }


def added(hosts: dict[str, Host], *targets: Target, is_fewest: bool = False) -> list[tuple[str, ...]]:
    """Return the targets that machines add to those of a profile, which are the same in any order."""
    profile = replace(PROFILE, targets=targets)
    existing = find_kinds(profile, CATALOGUE, torch_index=None)
    taken = [target.name for target in targets]
    new = [
        fleet(dict(order), wish_of(profile, torch_index=None), CATALOGUE, existing=existing).list_new_targets(
            taken, is_fewest=is_fewest
        )
        for order in (hosts.items(), reversed(hosts.items()))
    ]
    assert new[0] == new[1]
    return [(target.name, target.backend or "", target.torch or "", target.python) for target in new[0]]


MIXED = ("v100-driver-580", "m2-macos-15", "m2-macos-14", "rtx-4090-driver-580", "mig-a100")


def test_the_targets_that_a_profile_lacks_are_named_once() -> None:
    hosts = {name: recorded(name) for name in MIXED}
    cu126 = Target(name="v", platform="linux-x86_64", python="3.11", backend="cu126", torch="2.14")
    assert added(hosts, cu126) == [
        ("cpu-darwin-arm64", "cpu", "", "3.12"),
        ("cpu-darwin-arm64-2-14", "cpu", "2.14", "3.12"),
        ("cu132", "cu132", "", "3.12"),
    ]


def test_the_fewest_targets_are_added_only_for_machines_that_no_other_target_serves() -> None:
    hosts = {name: recorded(name) for name in MIXED}
    assert added(hosts, is_fewest=True) == [
        ("cpu-darwin-arm64-2-14", "cpu", "2.14", "3.12"),
        ("cu126", "cu126", "", "3.12"),
    ]
    cu126 = Target(name="v", platform="linux-x86_64", python="3.11", backend="cu126", torch="2.14")
    assert added(hosts, cu126, is_fewest=True) == [("cpu-darwin-arm64-2-14", "cpu", "2.14", "3.12")]


def test_a_target_that_fits_is_used_again_whatever_its_name_and_its_words() -> None:
    hosts = {name: recorded(name) for name in ("m2-macos-15", "rtx-4090-driver-580")}
    mac = Target(name="mac", platform="darwin-arm64", python="3.12")
    general = Target(
        name="general", platform="linux-x86_64", python="3.12", backend="cu132", index="packages"
    )
    assert added(hosts, mac, general) == []
    assert added(hosts, mac, general, is_fewest=True) == []


def test_a_name_that_a_profile_has_for_another_kind_is_not_taken_twice() -> None:
    other = Target(name="cu132", platform="linux-aarch64", python="3.12", backend="cu132")
    assert added({"ada": recorded("rtx-4090-driver-580")}, other) == [("cu132-2", "cu132", "", "3.12")]


@pytest.mark.parametrize("is_fewest", [False, True])
def test_one_machine_with_a_newer_python_moves_no_other(*, is_fewest: bool) -> None:
    ada = nvidia("580.65.06", ("NVIDIA GeForce RTX 4090", "8.9"))
    hosts = {f"node-{number}": linux("3.12.7", nvidia=ada) for number in range(4)}
    hosts["a-new-one"] = linux("3.14.0", nvidia=ada)
    assert added(hosts, is_fewest=is_fewest) == [("cu132", "cu132", "", "3.12")]


def test_a_large_fleet_of_many_kinds_is_answered_too() -> None:
    hosts = {}
    for minor in range(11, 15):
        for n, driver in enumerate(("535.104", "550.54", "580.65.06", "595.45.04", "615.71")):
            card = ("NVIDIA GeForce RTX 4090", "8.9")
            hosts[f"{minor}-{n}"] = linux(f"3.{minor}.1", nvidia=nvidia(driver, card))
        hosts[f"{minor}-cpu"] = linux(f"3.{minor}.1")
    found = fleet(hosts, wish_of(PROFILE, torch_index=None), CATALOGUE)
    assert not found.unserved
    assert all(member.served_by for member in found.members)
    # Whatever driver and Python each has today, one CUDA build and the CPU's serve them.
    assert len(found.targets) == 2


def test_machines_that_differ_in_when_they_were_looked_at_are_decided_alike_and_each_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Question] = []

    def resolve(ask: Question) -> Plan:
        asked.append(ask)
        return choices.resolve(ask)

    monkeypatch.setattr(fleets, "resolve", resolve)
    one, other = recorded("rtx-4090-driver-580"), recorded("v100-driver-580")
    hosts = {
        f"node-{number:03}": replace(
            other if number % 10 == 0 else one, captured_at=f"2026-11-30T00:00:{number}Z"
        )
        for number in range(60)
    }
    found = fleet(hosts, Wish(version="2.15"), CATALOGUE)
    assert [member.name for member in found.members] == list(hosts)
    kinds = [member.kind.backend for member in found.members if member.kind]
    assert kinds == ["cu126" if number % 10 == 0 else "cu132" for number in range(60)]
    # Two plans, and each of the two kinds that they lead to tried on both.
    assert len(asked) == 2 + 2 * 2
