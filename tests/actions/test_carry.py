"""What is carried along is locked at the same versions where they resolve, and what gave way is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import PYTHON
from tests.support.index import Index
from tests.support.installed import Site
from tests.support.wheels import Wheel

from torchenv.actions.carry import Settled, list_bound_to_old_torch, lock_with, summarise
from torchenv.catalogue import resources
from torchenv.environment.inspect import distributions
from torchenv.errors import NothingSuits, PackagesConflict, ToolFailed, Unobtainable
from torchenv.host.model import Host
from torchenv.index.http import Network
from torchenv.index.pages import fetcher
from torchenv.installers import LockRequest
from torchenv.installers.uv import Uv
from torchenv.lockfile.lock import Lock, LockedFile, LockedPackage
from torchenv.packages import CarriedPackages, CarriedRequirement, Wanted, of_environment
from torchenv.plan import Question, Wish, resolve

Ask = Callable[..., LockRequest]


def wanted(name: str, version: str) -> Wanted:
    asks = (f"{name}=={version}", f"{name}>={version}", name)
    return Wanted(name=name, version=version, source=".venv", asks=asks)


def said(settled: tuple[Settled, ...]) -> list[str]:
    return [str(device) for device in settled]


def test_versions_are_kept_where_they_resolve(uv: Uv, request_for: Ask) -> None:
    carried = CarriedPackages(wanted=(wanted("numpy", "2.2.0"), wanted("lightning", "2.5.0")))
    lock, settled = lock_with(carried, request_for(), uv)
    assert lock.versions["numpy"] == "2.2.0"
    assert lock.versions["torch"] == "2.15.0+cu132"
    assert said(settled) == ["numpy 2.2.0 at the same version", "lightning 2.5.0 at the same version"]


def test_only_what_the_conflict_names_gives_way(uv: Uv, request_for: Ask, index: Index) -> None:
    index.add("simple", Wheel(name="jax", version="1.0", requires=("numpy>=2.3",)))
    carried = CarriedPackages(
        requirements=(CarriedRequirement("jax", "requirements.txt:1"),),
        wanted=(wanted("numpy", "2.2.0"), wanted("filelock", "3.20.0")),
    )
    lock, settled = lock_with(carried, request_for(), uv)
    assert lock.versions["numpy"] == "2.3.0"
    assert [(device.name, device.now, device.is_same_version) for device in settled] == [
        ("numpy", "2.3.0", False),
        ("filelock", "3.20.0", True),
    ]
    assert said(settled)[0].startswith("numpy 2.2.0 → 2.3.0: the packages do not fit together: ")


def test_a_version_that_the_index_no_longer_has_becomes_a_newer_or_an_older_one(
    uv: Uv, request_for: Ask, index: Index
) -> None:
    carried = CarriedPackages(wanted=(wanted("numpy", "2.2.1"), wanted("lightning", "2.6.0")))
    _, settled = lock_with(carried, request_for(), uv)
    assert said(settled) == [
        f"numpy 2.2.1 → 2.3.0: {index.packages} has no numpy==2.2.1",
        f"lightning 2.6.0 → 2.5.0: {index.packages} has no lightning==2.6.0",
    ]


def test_a_version_without_a_wheel_for_the_new_python_becomes_a_newer_one(
    uv: Uv, request_for: Ask, index: Index
) -> None:
    index.add("simple", Wheel(name="fast", version="1.0", tag="cp39-cp39-manylinux_2_28_x86_64"))
    index.add("simple", Wheel(name="fast", version="1.1"))
    carried = CarriedPackages(wanted=(wanted("fast", "1.0"), wanted("numpy", "2.2.0")))
    _, settled = lock_with(carried, request_for(), uv)
    assert [(device.name, device.now) for device in settled] == [
        ("fast", "1.1"),
        ("numpy", "2.2.0"),
    ]


def test_what_is_nowhere_is_left_out_and_the_rest_is_kept(uv: Uv, request_for: Ask, index: Index) -> None:
    carried = CarriedPackages(wanted=(wanted("house-tools", "3.0"), wanted("numpy", "2.2.0")))
    lock, settled = lock_with(carried, request_for(), uv)
    assert "house-tools" not in lock.versions
    assert said(settled) == [
        f"house-tools 3.0 left out: {index.packages} has no house-tools==3.0",
        "numpy 2.2.0 at the same version",
    ]


def test_what_wants_another_torch_is_left_out_with_both_sides_named(uv: Uv, request_for: Ask) -> None:
    carried = CarriedPackages(wanted=(wanted("xformers", "0.0.40"), wanted("numpy", "2.2.0")))
    lock, settled = lock_with(carried, request_for(), uv)
    assert "xformers" not in lock.versions
    xformers, numpy = said(settled)
    assert xformers == (
        "xformers 0.0.40 left out: xformers==0.0.40 wants torch==2.14.1, and the plan has torch==2.15.0+cu132"
    )
    assert numpy == "numpy 2.2.0 at the same version"


def test_what_is_asked_for_by_name_never_gives_way(uv: Uv, request_for: Ask) -> None:
    carried = CarriedPackages(
        requirements=(CarriedRequirement("xformers", "requirements.txt:1"),),
        wanted=(wanted("numpy", "2.2.0"),),
    )
    with pytest.raises(NothingSuits) as caught:
        lock_with(carried, request_for(), uv)
    assert str(caught.value) == "xformers==0.0.40 wants torch==2.14.1, and the plan has torch==2.15.0+cu132"


def test_constraints_hold_over_versions_that_are_to_be_kept(uv: Uv, request_for: Ask) -> None:
    bounds = (CarriedRequirement("numpy<2.3", "bounds.txt:1"),)
    _, settled = lock_with(
        CarriedPackages(constraints=bounds, wanted=(wanted("numpy", "2.3.0"),)), request_for(), uv
    )
    assert [(device.name, device.now) for device in settled] == [("numpy", "2.2.0")]


def test_what_is_for_another_platform_is_said(uv: Uv, request_for: Ask) -> None:
    elsewhere = Wanted(
        name="lightning",
        version="2.5.0",
        source="pylock.toml",
        asks=('lightning==2.5.0 ; sys_platform == "win32"',),
    )
    _, settled = lock_with(CarriedPackages(wanted=(elsewhere,)), request_for(), uv)
    assert said(settled) == ["lightning 2.5.0 left out: it is not for this platform"]


class Scripted:
    """An installer that answers each lock with the next of what it is given, then with an empty lock."""

    def __init__(self, *answers: Exception | Lock) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, ...]] = []

    def lock(self, request: LockRequest) -> Lock:
        self.asked.append(request.packages)
        answer = self.answers.pop(0) if self.answers else Lock("", ())
        if isinstance(answer, Exception):
            raise answer
        return answer

    cache = None

    def fetch_python(self, python: str) -> Path:
        raise NotImplementedError(python)

    def create(self, environment: Path, python: Path) -> None:
        raise NotImplementedError(environment, python)

    def install(self, environment: Path, lock: Path) -> None:
        raise NotImplementedError(environment, lock)


def test_a_network_that_fails_loosens_nothing(request_for: Ask) -> None:
    failing = Scripted(ToolFailed("cannot reach https://mirror.example/simple/numpy/: no answer"))
    with pytest.raises(ToolFailed):
        lock_with(CarriedPackages(wanted=(wanted("numpy", "2.2.0"),)), request_for(), failing)
    assert failing.asked == [("numpy==2.2.0",)]


def test_only_whoever_the_installer_names_is_asked_for_less(request_for: Ask) -> None:
    refusal = Unobtainable("it has none of simple and numpy", packages=frozenset({"simple-numpy"}))
    installer = Scripted(refusal)
    carried = CarriedPackages(
        wanted=(wanted("simple", "1"), wanted("simple-numpy", "2.2.0"), wanted("numpy", "1"))
    )
    lock_with(carried, request_for(), installer)
    assert installer.asked[-1] == ("simple==1", "simple-numpy>=2.2.0", "numpy==1")


def holding(version: str, file: str) -> Lock:
    files = (LockedFile(name=file, url=f"https://files.example/{file}", sha256="ab"),)
    return Lock("", (LockedPackage("numpy", version, None, files),))


def test_a_version_that_would_be_built_from_sources_becomes_one_with_a_wheel(request_for: Ask) -> None:
    # numpy 1.26.4 has no wheel for Python 3.13, and building it takes compilers and minutes.
    installer = Scripted(holding("1.26.4", "numpy-1.26.4.tar.gz"), holding("2.3.0", "numpy-2.3.0-cp313.whl"))
    _, settled = lock_with(CarriedPackages(wanted=(wanted("numpy", "1.26.4"),)), request_for(), installer)
    assert installer.asked == [("numpy==1.26.4",), ("numpy>=1.26.4",)]
    assert said(settled) == [f"numpy 1.26.4 → 2.3.0: 1.26.4 has no wheel for Python {PYTHON} on linux-x86_64"]


def test_what_there_are_only_sources_of_is_kept(request_for: Ask) -> None:
    installer = Scripted(*(holding("1.0", "numpy-1.0.tar.gz") for _ in range(2)))
    _, settled = lock_with(CarriedPackages(wanted=(wanted("numpy", "1.0"),)), request_for(), installer)
    assert said(settled) == ["numpy 1.0 at the same version"]


def test_where_nobody_is_named_all_give_way_but_none_is_left_out(request_for: Ask) -> None:
    refusals = [PackagesConflict("the packages do not fit together: somehow") for _ in range(3)]
    installer = Scripted(*refusals)
    with pytest.raises(NothingSuits, match="somehow"):
        lock_with(CarriedPackages(wanted=(wanted("a", "1"), wanted("b", "2"))), request_for(), installer)
    assert installer.asked == [("a==1", "b==2"), ("a>=1", "b>=2"), ("a", "b")]


def test_what_was_made_for_the_old_torch_becomes_what_the_index_has_for_the_new_one(
    uv: Uv, request_for: Ask, index: Index, tmp_path: Path
) -> None:
    index.add("simple", Wheel(name="xformers", version="0.0.41", requires=("torch==2.15.0",)))
    index.add("simple", Wheel(name="flash-attn", version="2.8.3"))
    site, catalogue = Site(tmp_path / ".venv"), resources.catalogue()
    site.add_torch()
    site.add("xformers", "0.0.40", "torch==2.14.1", requested=True)
    site.add("flash-attn", "2.8.3", "torch", requested=True, files={"_C.so": b"\0libc10.so\0libtorch.so\0"})
    site.add("numpy", "2.2.0", requested=True)
    host = Host.from_json(Path("tests/data/hosts/rtx-4090-driver-580.json").read_text("utf-8"), "host")
    asked = Question(host=host, wish=Wish(version="2.15.0"), catalogue=catalogue)
    build = resolve(asked).build
    assert build is not None

    carried = list_bound_to_old_torch(
        of_environment(distributions(site.installation), ".venv", catalogue),
        site.installation,
        build,
        platform="linux-x86_64",
        index=index.packages,
        fetch=fetcher(Network()),
    )
    (flash_attn,) = carried.cannot_follow
    assert str(flash_attn) == (
        "flash-attn 2.8.3 cannot follow: _C.so was compiled against torch 2.14.1+cu130;"
        f" {index.packages} has nothing newer with a wheel that fits"
    )
    _, settled = lock_with(carried, request_for(), uv)
    assert [(device.name, device.now) for device in settled] == [("numpy", "2.2.0"), ("xformers", "0.0.41")]


def test_a_summary_counts_what_stays_and_names_what_does_not() -> None:
    same = Settled(name="numpy", version="2.2.0", now="2.2.0")
    newer = Settled(name="scipy", version="1.0", now="1.1", why="1.0 has no wheel")
    assert list(summarise([same, same])) == ["2 packages kept at the same versions"]
    assert list(summarise([same, newer])) == [
        "1 package kept at the same version, 1 changed:",
        "  scipy 1.0 → 1.1: 1.0 has no wheel",
    ]
    assert list(summarise([])) == []
