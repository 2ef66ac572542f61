"""What is asked of torch's family is checked against the plan before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.catalogue.releases import Catalogue
from torchenv.errors import NothingSuits
from torchenv.packages import (
    CarriedPackages,
    CarriedRequirement,
    Wanted,
    companions,
    of_file,
    refuse_conflicts,
    together,
)

PLAN = ("torch==2.15.0+cu132", "torchvision==0.29.2+cu132")


def listing(text: str, catalogue: Catalogue) -> CarriedPackages:
    return of_file("requirements.txt", Path("/p"), lambda _: text, catalogue)


def check(carried: CarriedPackages, *, platform: str = "linux-x86_64") -> None:
    refuse_conflicts(carried, PLAN, platform=platform, python="3.12")


@pytest.mark.parametrize(
    "text", ["torch", "torch>=2.1,<3", "torch==2.15.*", "torch==2.15.0", "torch==2.15.0+cu132"]
)
def test_a_demand_that_the_plan_meets_is_no_trouble(text: str, catalogue: Catalogue) -> None:
    found = listing(text, catalogue)
    check(found)
    assert (found.requirements, companions(found, "linux-x86_64")) == ((), ())


def test_each_demand_that_the_plan_breaks_is_named(catalogue: Catalogue) -> None:
    with pytest.raises(NothingSuits) as caught:
        check(listing("torch==2.14.1\nnumpy\ntorchvision<0.29\n", catalogue))
    assert str(caught.value) == (
        "requirements.txt:1 wants torch==2.14.1, and the plan has torch==2.15.0+cu132;"
        " requirements.txt:3 wants torchvision<0.29, and the plan has torchvision==0.29.2+cu132"
    )
    assert caught.value.hint == ("loosen or remove that line, or plan a release that it takes: torch==2.14.1")


def test_the_build_of_another_backend_is_another_version(catalogue: Catalogue) -> None:
    with pytest.raises(
        NothingSuits, match=r"wants torch==2\.15\.0\+cu134, and the plan has torch==2\.15\.0\+cu132"
    ):
        check(listing("torch==2.15.0+cu134", catalogue))


def test_a_constraint_is_checked_and_asks_for_nothing() -> None:
    bound = CarriedPackages(family_constraints=(CarriedRequirement("torchvision<0.29", "bounds.txt:1"),))
    assert companions(bound, "linux-x86_64") == ()
    with pytest.raises(NothingSuits, match=r"^bounds.txt:1 wants torchvision<0\.29, and"):
        check(bound)


def test_a_line_for_another_platform_or_python_does_not_count(catalogue: Catalogue) -> None:
    text = (
        'torch==2.14.1 ; sys_platform == "win32"\n'
        'torch==2.11.0 ; python_version < "3.12"\n'
        'torchaudio ; platform_system == "Darwin"\n'
    )
    found = listing(text, catalogue)
    check(found)
    assert companions(found, "linux-x86_64") == ()
    assert companions(found, "darwin-arm64") == ("torchaudio",)
    with pytest.raises(NothingSuits, match=r"^requirements.txt:1 wants torch==2\.14\.1, and"):
        check(found, platform="windows-x86_64")


def test_what_is_asked_for_by_name_is_not_wanted_a_second_time() -> None:
    numpy = Wanted(name="numpy", version="2.2.0", source=".venv", asks=("numpy==2.2.0", "numpy"))
    tqdm = Wanted(name="tqdm", version="4.67", source=".venv", asks=("tqdm==4.67", "tqdm"))
    by_name = CarriedPackages(requirements=(CarriedRequirement("NumPy<3", "requirements.txt:1"),))
    found = together(by_name, CarriedPackages(wanted=(numpy, tqdm)), by_name)
    assert found.requirements == by_name.requirements
    assert found.wanted == (tqdm,)
