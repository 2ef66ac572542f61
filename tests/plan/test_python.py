"""Which interpreter a plan stands on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packaging.version import Version
from tests.plan.hosts import CATALOGUE, codes, linux, planned, recorded

from torchenv.host.model import Host, Interpreter, SeenEnvironment
from torchenv.plan import Question, Wish, resolve


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
    assert plan.why[0].endswith("/opt/nothing/python is not a Python that can be run here")


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
    assert {each.version: each.why for each in plan.pythons} == {
        "3.10": "torch 2.15.0 requires Python >=3.11",
        "3.13t": "torch 2.15.0 has no wheel for Python 3.13t",
        "3.15": "torchvision has no wheel for Python 3.15",
        "3.15t": "torchvision has no wheel for Python 3.15t",
    }

    alone = resolve(Question(host=host, wish=Wish(version="2.15"), catalogue=catalogue))
    assert alone.build is not None
    assert (alone.build.python.minor, alone.build.index) == ("3.15", "https://download.pytorch.org/whl/cu132")
