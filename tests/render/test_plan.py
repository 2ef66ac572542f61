"""A plan is told answer first; what was not chosen is for who asks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torchenv.catalogue import resources
from torchenv.host.model import Host
from torchenv.plan import Plan, Question, Wish, resolve
from torchenv.render.plan import describe_decision, describe_plan, describe_refusal

HOSTS = Path(__file__).parents[1] / "data" / "hosts"


def plan_for(name: str) -> Plan:
    path = HOSTS / f"{name}.json"
    host = Host.from_json(path.read_text("utf-8"), path.name)
    return resolve(Question(host=host, wish=Wish(version="2.15"), catalogue=resources.catalogue()))


def test_a_plan_for_another_machine_ends_with_what_to_run_there() -> None:
    lines = describe_plan(
        plan_for("rtx-4090-driver-580"), following="torchenv create 2.15", is_elsewhere=True
    )
    assert lines.splitlines()[-1] == "on that machine: torchenv create 2.15"


def test_the_choice_comes_first_and_the_next_command_last() -> None:
    lines = describe_plan(plan_for("rtx-4090-driver-580"), following="torchenv create 2.15").splitlines()
    assert lines[:3] == [
        "torch 2.15.0+cu132 for Python 3.12 (/usr/bin/python3.12)",
        "  from https://download.pytorch.org/whl/cu132",
        "device: nvidia 0 NVIDIA GeForce RTX 4090: supported",
    ]
    assert lines[3].startswith("advice: upgrade (")
    assert lines[4:] == ["next: torchenv create 2.15"]


def test_the_advice_of_a_fallback_names_its_line_and_repeats_no_reason() -> None:
    plan = plan_for("v100-driver-580")
    (advice,) = [line for line in describe_plan(plan).splitlines() if line.startswith("advice:")]
    assert advice == "advice: stay on torch 2.14 (torch 2.14.1 (cu126) suits this machine)"


def test_what_was_not_chosen_is_told_to_who_asks() -> None:
    plan = plan_for("rtx-4090-driver-580")
    assert "cu134" not in describe_plan(plan)
    explained = describe_plan(plan, explain=True).splitlines()
    assert "not chosen:" in explained
    assert sum(line.startswith("  torch 2.15.0 (") for line in explained) == len(plan.rejected)
    assert "with pip alone: python -m pip install torch==2.15.0+cu132" in "\n".join(explained)
    assert "not chosen:" in describe_decision(plan, explain=True)


def test_a_refusal_counts_its_candidates_and_lists_them_to_who_asks() -> None:
    plan = plan_for("gtx-780")
    told = describe_plan(plan).splitlines()
    assert told[0] == "no build of torch 2.15 suits this host"
    assert told[-1] == f"{len(plan.rejected)} candidates rejected; list them with --explain"
    assert describe_refusal(plan, explain=True).count("\n  torch ") == len(plan.rejected)


def test_devices_of_one_kind_are_one_line() -> None:
    plan = plan_for("rtx-4090-driver-580")
    (device,) = plan.devices
    many = replace(plan, devices=tuple(replace(device, index=number) for number in range(3)))
    assert "device: nvidia 0,1,2 NVIDIA GeForce RTX 4090: supported" in describe_plan(many)
