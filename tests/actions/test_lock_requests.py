"""What the installer is asked for each target, whatever machine asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.actions.lock import LockOrder, lock
from torchenv.catalogue import resources
from torchenv.errors import NothingSuits
from torchenv.installers import LockRequest
from torchenv.lockfile.lock import Lock
from torchenv.packages import CarriedPackages
from torchenv.profile.model import Profile, Target, Torch

LOCK = """\
lock-version = "1.0"
created-by = "torchenv"

[[packages]]
name = "torch"
version = "{torch}"
wheels = [
    {{ url = "https://m.example/torch-{torch}-cp312-none-any.whl", hashes = {{ sha256 = "aa" }} }},
]

[[packages]]
name = "torchcodec"
version = "0.9.0.dev1"
wheels = [
    {{ url = "https://m.example/torchcodec-0.9.0.dev1-cp312-none-any.whl", hashes = {{ sha256 = "bb" }} }},
]
"""


class Recorder:
    """An installer that answers every request with the torch asked for, and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[LockRequest] = []
        self.fetched: list[str] = []

    def lock(self, request: LockRequest) -> Lock:
        self.requests.append(request)
        torch = request.requirements[0].partition("==")[2]
        return Lock.parse(LOCK.format(torch=torch), "a lock")

    cache = None

    def fetch_python(self, python: str) -> Path:
        self.fetched.append(python)
        return Path("/fetched") / python

    def create(self, environment: Path, python: Path) -> None:
        raise AssertionError

    def install(self, environment: Path, lock: Path) -> None:
        raise AssertionError


def order(*targets: Target, version: str = "2.15") -> LockOrder:
    return LockOrder(
        profile=Profile(name="team", torch=Torch(version=version), targets=targets),
        wanted={},
        carried={target.name: CarriedPackages() for target in targets},
        catalogue=resources.catalogue(),
    )


def test_a_free_threaded_target_is_locked_with_an_interpreter_of_its_kind() -> None:
    recorder = Recorder()
    target = Target(name="t", platform="linux-x86_64", python="3.14t", backend="cpu")
    lock(order(target), recorder, print)
    (request,) = recorder.requests
    assert recorder.fetched == ["3.14t"]
    assert (request.python, request.free_threaded) == ("3.14", True)
    assert request.interpreter == Path("/fetched/3.14t")


def test_a_lock_for_macs_serves_the_oldest_that_the_release_installs_on() -> None:
    recorder = Recorder()
    lock(order(Target(name="m", platform="darwin-arm64", python="3.12")), recorder, print)
    (request,) = recorder.requests
    assert (request.macos, request.torch_index, request.interpreter) == ("14.0", None, None)


def test_a_development_build_in_a_lock_is_told_to_expire() -> None:
    made = lock(order(Target(name="t", platform="linux-x86_64", python="3.12")), Recorder(), print)
    assert list(made.notes()) == [
        "t: torchcodec 0.9.0.dev1 is a development build: its wheel expires, and its lock file with it"
    ]


def test_a_target_that_cannot_be_met_stops_all_before_anything_is_chosen() -> None:
    recorder = Recorder()
    targets = (
        Target(name="good", platform="linux-x86_64", python="3.12"),
        Target(name="old", platform="linux-x86_64", python="3.9"),
    )
    with pytest.raises(NothingSuits) as caught:
        lock(order(*targets), recorder, print)
    assert str(caught.value) == "target old: torch 2.15.0 (cpu): requires Python >=3.11, not 3.9"
    assert recorder.requests == []
