"""What an environment needs of the variables around it is settled with its plan and kept with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.workshop import recorded

from torchenv.actions.inside import activation, command
from torchenv.catalogue import resources
from torchenv.host.model import Host
from torchenv.plan import Plan, Question, Wish, resolve
from torchenv.workspace.records import Activation


def planned(host: Host, **wish: object) -> Plan:
    asked = Wish(version="2.15", **wish)  # type: ignore[arg-type]
    return resolve(Question(host=host, wish=asked, catalogue=resources.catalogue()))


def test_a_plan_that_serves_every_device_needs_nothing() -> None:
    host = recorded("rtx-4090-driver-580")
    assert activation(planned(host), host) is None


def test_an_integrated_part_beside_a_card_is_hidden() -> None:
    host = recorded("raphael-igpu-beside-rx-9060")
    assert activation(planned(host), host) == Activation(set={"HIP_VISIBLE_DEVICES": "1"})


def test_a_card_that_was_left_out_is_hidden_in_the_order_of_the_bus() -> None:
    host = recorded("gtx-1080-ti-beside-rtx-4090")
    assert activation(planned(host, devices=(0,)), host) == Activation(
        set={"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}
    )


def overridden(gfx: str, override: str) -> Host:
    """Return a machine with one AMD chip, which a variable makes ROCm take for another."""
    host = recorded("strix-halo-gfx1151")
    (chip,) = host.amd.devices
    return replace(host, amd=replace(host.amd, devices=(replace(chip, gfx=gfx, override=override),)))


def test_a_variable_that_makes_rocm_take_the_chip_for_another_is_taken_out() -> None:
    host = overridden("gfx1151", "gfx900")
    assert activation(planned(host), host) == Activation(unset=("HSA_OVERRIDE_GFX_VERSION",))


def test_a_variable_without_which_the_chip_would_not_be_served_stays_once_it_was_accepted() -> None:
    host = overridden("gfx1153", "gfx1100")
    plan = planned(host, accept_override=True)
    assert [warning.code for warning in plan.warnings] == ["override-accepted"]
    assert activation(plan, host) is None


def test_the_look_from_inside_is_taken_with_the_same_variables(tmp_path: Path) -> None:
    around = Activation(set={"HIP_VISIBLE_DEVICES": "1"}, unset=("HSA_OVERRIDE_GFX_VERSION",))
    looking = command(tmp_path, (), around)
    assert (looking.env, looking.without) == (around.set, around.unset)
    assert " env -u HSA_OVERRIDE_GFX_VERSION HIP_VISIBLE_DEVICES=1 " in str(looking)
