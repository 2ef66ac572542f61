"""Which interpreter a plan stands on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packaging.version import Version
from tests.plan.hosts import CATALOGUE, codes, linux, planned, recorded, warned

from torchenv.host.model import Host, Interpreter, SeenEnvironment
from torchenv.plan import Outcome, Question, Wish, resolve


def python_of(host: Host | str, **wish: object) -> tuple[str, str | None]:
    """Return the minor and the path of the interpreter that is planned."""
    build = planned(host, **wish).build  # type: ignore[arg-type]
    assert build is not None
    return build.python.minor, build.python.path


def in_use(version: str) -> SeenEnvironment:
    """Make up an environment in use."""
    return SeenEnvironment(path="/p/.venv", python=Version(version), active=True)


def test_the_minor_version_of_the_environment_in_use_comes_first() -> None:
    host = linux("3.11.9", "3.12.7", "3.13.1", environments=(in_use("3.11.4"),))
    assert python_of(host) == ("3.11", "/usr/bin/python3.11.9")


def test_the_newest_comes_where_the_one_in_use_has_no_wheels() -> None:
    host = linux("3.10.14", "3.12.7", "3.13.1", environments=(in_use("3.10.14"),))
    assert python_of(host) == ("3.13", "/usr/bin/python3.13.1")


def test_an_interpreter_that_was_asked_for_beats_all_others() -> None:
    host = linux("3.11.9", "3.12.7", environments=(in_use("3.12.1"),))
    assert python_of(host, python="3.11") == ("3.11", "/usr/bin/python3.11.9")
    assert python_of(host, python="/usr/bin/python3.11.9") == ("3.11", "/usr/bin/python3.11.9")


def test_one_that_is_not_there_is_fetched_where_the_network_may_be_used() -> None:
    assert python_of(linux("3.12.7"), python="3.13") == ("3.13", None)
    refused = planned(linux("3.12.7"), python="3.13", offline=True)
    assert codes(refused, "2.15.0")["cpu"] == "no-interpreter"


@pytest.mark.parametrize(
    ("python", "code"),
    [("3.10", "python-too-old"), ("3.16", "python-too-new"), ("3.13t", "no-interpreter")],
)
def test_a_version_without_wheels_is_told_apart_by_why(python: str, code: str) -> None:
    plan = planned(linux("3.10.14", "3.12.7"), python=python, fallback=False)
    assert codes(plan, "2.15.0")["cpu"] == code


def test_a_path_that_is_no_interpreter_is_refused() -> None:
    plan = planned(linux("3.12.7"), python="/opt/nothing/python", fallback=False)
    assert plan.why[0].endswith("/opt/nothing/python is not a Python that runs here")


def test_free_threaded_only_when_asked_for() -> None:
    threads = Interpreter(version=Version("3.14.0"), path="/t", machine="x86_64", free_threaded=True)
    host = linux("3.12.7")
    host = replace(host, pythons=(*host.pythons, threads))
    assert python_of(host) == ("3.12", "/usr/bin/python3.12.7")
    assert python_of(host, free_threaded=True) == ("3.14t", "/t")
    assert planned(host, free_threaded=True).build.name == "2.15.0-cpu-py3.14t"  # type: ignore[union-attr]


def test_an_interpreter_of_another_architecture_is_not_one() -> None:
    assert python_of("rosetta-python")[1] is None


def test_condas_interpreter_is_taken_only_by_its_path() -> None:
    conda = Interpreter(version=Version("3.13.1"), path="/conda/bin/python", machine="x86_64", conda=True)
    host = replace(linux("3.12.7"), pythons=(*linux("3.12.7").pythons, conda))
    assert python_of(host) == ("3.12", "/usr/bin/python3.12.7")
    assert python_of(host, python="/conda/bin/python") == ("3.13", "/conda/bin/python")


def test_every_asked_package_needs_a_wheel_for_the_interpreter() -> None:
    host = recorded("free-threaded-pythons")
    release = CATALOGUE.releases[0]
    vision = replace(release.companions["torchvision"], pythons=("3.11", "3.12", "3.13", "3.14"))
    catalogue = replace(
        CATALOGUE, releases=(replace(release, companions={"torchvision": vision}), *CATALOGUE.releases[1:])
    )

    wish = Wish(version="2.15", packages=("torchvision",))
    plan = resolve(Question(host=host, wish=wish, catalogue=catalogue))
    assert plan.build is not None
    assert plan.build.python.minor == "3.12"
    assert {python.version: python.why for python in plan.pythons} == {
        "3.10": "torch 2.15.0 requires Python >=3.11",
        "3.13t": "torch 2.15.0 has no wheel for Python 3.13t",
        "3.15": "torchvision has no wheel for Python 3.15",
        "3.15t": "torchvision has no wheel for Python 3.15t",
    }

    alone = resolve(Question(host=host, wish=Wish(version="2.15", python="3.15"), catalogue=catalogue))
    assert alone.build is not None
    assert (alone.build.python.minor, alone.build.index) == ("3.15", "https://download.pytorch.org/whl/cu132")


def test_a_preferred_interpreter_that_is_here_comes_before_a_newer_one() -> None:
    assert python_of(linux("3.15.0", "3.14.2", "3.12.7")) == ("3.12", "/usr/bin/python3.12.7")


def test_what_is_fetched_is_the_first_preferred_and_never_the_newest() -> None:
    assert python_of(linux("3.10.14")) == ("3.13", None)


def test_the_minor_of_the_active_environment_is_fetched_where_it_is_not_here() -> None:
    conda = SeenEnvironment(path="/conda/envs/old", python=Version("3.11.9"), active=True)
    host = replace(linux("3.12.7"), environments=(conda,))
    assert python_of(host) == ("3.11", None)
    assert python_of(host, offline=True) == ("3.12", "/usr/bin/python3.12.7")


@pytest.mark.parametrize(
    ("here", "wish", "chosen"),
    [
        (("3.13.8", "3.12.7"), {}, "/usr/bin/python3.12.7"),
        (("3.13.8", "3.13.5"), {}, "/usr/bin/python3.13.5"),
        (("3.13.8",), {}, None),
        (("3.13.8",), {"offline": True}, "/usr/bin/python3.13.8"),
        (("3.14.1",), {}, "/usr/bin/python3.14.1"),
        (("3.14.1",), {"packages": ("torchvision",)}, None),
        (("3.15.0",), {"version": "2.14"}, None),
    ],
)
def test_an_interpreter_that_the_catalogue_warns_of_is_taken_last(
    here: tuple[str, ...], wish: dict[str, Any], chosen: str | None
) -> None:
    assert python_of(linux(*here), **wish)[1] == chosen


def test_one_that_is_warned_of_is_named_with_the_warning() -> None:
    plan = planned(linux("3.13.8"), python="3.13.8")
    assert (
        warned(plan)["python-avoided"] == "Python 3.13.8 has a fault in its imports (/usr/bin/python3.13.8)"
    )


def test_one_that_a_package_does_not_install_on_is_refused_even_by_name() -> None:
    plan = planned(linux("3.14.1"), python="3.14.1", packages=("torchvision",), fallback=False)
    assert plan.outcome is Outcome.BLOCKED
    assert plan.why == ("torch 2.15.0 (cpu): torchvision does not install on Python 3.14.1",)


def test_why_the_others_were_not_chosen_is_said_of_each() -> None:
    plan = planned(linux("3.13.8", "3.12.7", "3.11.9"))
    assert {passed.version: passed.why for passed in plan.pythons} == {
        "3.13": "Python 3.13.8 has a fault in its imports",
        "3.11": "Python 3.12 is preferred for torch 2.15",
    }


def test_a_mac_with_pythons_of_intel_alone_is_told_so() -> None:
    mac = recorded("m2-macos-15")
    intel = tuple(replace(python, machine="x86_64") for python in mac.pythons)
    plan = planned(replace(mac, pythons=intel), offline=True)
    assert plan.outcome is Outcome.BLOCKED
    assert plan.why == (
        "torch 2.15.0 (cpu): needs a Python for arm64, and those of this host are for x86_64",
    )
    assert plan.hint is not None
    assert "install one of Python 3.11, 3.12, 3.13, 3.14, 3.15 for arm64" in plan.hint


def test_an_environment_that_was_only_found_is_not_called_active() -> None:
    found = replace(in_use("3.12.4"), was_found=True)
    passed = planned(linux("3.12.7", "3.13.1", environments=(found,))).pythons
    assert {python.why for python in passed} == {
        "Python 3.12 matches /p/.venv, which was found in this project"
    }
    passed = planned(linux("3.12.7", "3.13.1", environments=(in_use("3.12.4"),))).pythons
    assert {python.why for python in passed} == {"Python 3.12 matches the active environment"}
