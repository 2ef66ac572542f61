"""`create` where an index is out of reach, lets nobody in, lacks something or serves something else."""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version
from tests.support.index import Index
from tests.support.wheels import Wheel
from tests.support.workshop import MINOR, Workshop, recorded

from torchenv.errors import IndexFailed, NothingSuits, ToolFailed, WorkspaceError
from torchenv.lockfile.lock import Lock
from torchenv.plan import Outcome
from torchenv.profile.model import BackendChoice, Packages, Profile, Torch
from torchenv.system.addresses import TorchIndex
from torchenv.system.disk import Disk, PathLength
from torchenv.system.process import Programs

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)

# The discard port: nobody listens there, and the refusal comes at once.
NOBODY = "http://127.0.0.1:9/whl"


# An index that cannot be reached.


def test_without_pytorchs_index_the_package_indexs_build_is_taken_where_it_serves(workshop: Workshop) -> None:
    made = workshop.create(recorded("rtx-4090-driver-580"), torch_index=TorchIndex(NOBODY))
    environment = made.environment
    assert (environment.torch, environment.backend, environment.index) == ("2.15.0+cu132", "cu132", None)
    assert not workshop.index.asked_for("whl/cu132", "torch")
    assert workshop.inside(made, "import torch; print(torch.__version__)") == "2.15.0+cu132"


def test_that_this_build_is_taken_is_said_with_the_plan(workshop: Workshop) -> None:
    order = workshop.order(
        recorded("rtx-4090-driver-580"),
        "2.15",
        profile=Profile(name="default"),
        run=Programs(workshop.environ),
        torch_index=TorchIndex(NOBODY),
    )
    (message,) = (warning.message for warning in order.plan.warnings if warning.code == "package-index")
    # Its size stands with the index, where a build that is cached has none.
    assert message == "PyTorch's index cannot be reached: using the package index's cu132 build"
    assert order.plan.build is not None
    assert order.plan.build.requirements == ("torch==2.15.0",)


def test_a_machine_that_only_pytorchs_index_serves_is_told_so_and_gets_nothing(workshop: Workshop) -> None:
    with pytest.raises(IndexFailed) as caught:
        workshop.create(recorded("v100-driver-580"), torch_index=TorchIndex(NOBODY))
    assert str(caught.value) == (
        f"{NOBODY}/cu126 cannot be reached (Connection refused),"
        " and the default package index has no build of torch 2.14.1 for this host"
    )
    assert caught.value.hint == (
        "check the network and its proxy, or name a mirror with TORCHENV_TORCH_INDEX;"
        " `torchenv plan --offline` plans from the catalogue alone"
    )
    assert caught.value.exit_code == 4
    assert not workshop.root.exists()


def test_an_index_with_other_backends_than_the_asked_one_is_said_to_lack_that(workshop: Workshop) -> None:
    profile = Profile(name="ci-cpu", backend=BackendChoice(only=("cpu",)))
    with pytest.raises(IndexFailed) as caught:
        workshop.create(recorded("cpu-only-linux"), profile=profile, torch_index=TorchIndex(NOBODY))
    assert str(caught.value) == (
        f"{NOBODY}/cpu cannot be reached (Connection refused),"
        " and the default package index has no cpu build of torch 2.15.0"
    )


# An index that lets nobody in.


def test_a_login_from_netrc_opens_the_mirror(workshop: Workshop, index: Index, tmp_path: Path) -> None:
    index.login = ("u", "secret")
    with pytest.raises(IndexFailed) as caught:
        workshop.create(recorded("rtx-4090-driver-580"))
    asked = f"{index.backend('cu132')}/torch/"
    assert str(caught.value) == f"the index at {asked} asks for a login (401 Unauthorized)"
    assert caught.value.hint == (
        "write `machine 127.0.0.1 login NAME password TOKEN` into ~/.netrc, or store the login in keyring"
    )

    (tmp_path / "netrc").write_text("machine 127.0.0.1 login u password secret\n", "utf-8")
    (tmp_path / "netrc").chmod(0o600)
    workshop.environ["NETRC"] = str(tmp_path / "netrc")
    made = workshop.create(recorded("rtx-4090-driver-580"))
    assert made.environment.torch == "2.15.0+cu132"
    assert "secret" not in workshop.store.lock_path(1).read_text("utf-8")
    assert "secret" not in workshop.store.manifest_path.read_text("utf-8")


# An index that lacks something.


def test_a_fossil_of_a_companion_is_no_companion(workshop: Workshop, index: Index) -> None:
    for backend in ("cu132", "cu134", "cu130", "cu126"):
        index.remove(f"whl/{backend}", "torchaudio")
    index.add("whl/cu132", Wheel(name="torchaudio", version="2.2.0", requires=("torch",)))
    profile = Profile(
        name="audio", torch=Torch(packages=("torchaudio",)), backend=BackendChoice(only=("cu132",))
    )
    order = workshop.order(
        recorded("rtx-4090-driver-580"), "2.15", profile=profile, run=Programs(workshop.environ)
    )
    assert order.plan.outcome is Outcome.BLOCKED
    first = next(item for item in order.plan.rejected if item.backend == "cu132")
    assert (first.code, first.message) == (
        "index-lacks-package",
        (
            f"torchaudio: {index.backend('cu132')} does not have torchaudio==2.11.1"
            f" for Python {MINOR} on linux-x86_64; its newest is 2.2.0"
        ),
    )


def test_a_build_that_its_index_lacks_gives_way_to_the_next_that_serves(
    workshop: Workshop, index: Index
) -> None:
    index.remove("whl/cu132", "torch")
    made = workshop.create(recorded("rtx-4090-driver-580"))
    assert made.environment.torch == "2.15.0+cu134"


def test_an_ordinary_package_that_is_nowhere_is_named_with_its_index(
    workshop: Workshop, index: Index
) -> None:
    profile = Profile(name="train", packages=Packages(requirements=("numpy>=3",)))
    with pytest.raises(IndexFailed) as caught:
        workshop.create(recorded("cpu-only-linux"), profile=profile)
    assert str(caught.value) == f"{index.packages} has no numpy>=3"
    assert nothing_was_built(workshop)


def test_a_package_that_wants_another_torch_is_named_with_both_sides(workshop: Workshop) -> None:
    profile = Profile(name="train", packages=Packages(requirements=("xformers",)))
    with pytest.raises(NothingSuits) as caught:
        workshop.create(recorded("rtx-4090-driver-580"), profile=profile)
    assert str(caught.value) == ("xformers==0.0.40 wants torch==2.14.1, and the plan has torch==2.15.0+cu132")
    assert nothing_was_built(workshop)


# A file that is another, and a disk that is full.


def test_a_file_that_is_not_the_listed_one_is_never_installed(workshop: Workshop, index: Index) -> None:
    tag = f"cp{MINOR.replace('.', '')}"
    index.damage(f"torch-2.15.0+cu132-{tag}-{tag}-manylinux_2_28_x86_64.whl")
    with pytest.raises(ToolFailed) as caught:
        workshop.create(recorded("rtx-4090-driver-580"))
    assert str(caught.value).startswith(
        "torch==2.15.0+cu132 is not the file that was locked: expected sha256 "
    )
    assert nothing_was_built(workshop)


class FullDisk(Disk):
    """A disk with 100 MiB left."""

    def free_space(self, path: Path) -> int:
        return 100 << 20


def test_a_disk_without_room_is_told_before_anything_is_fetched(workshop: Workshop) -> None:
    with pytest.raises(WorkspaceError) as caught:
        workshop.create(recorded("rtx-4090-driver-580"), disk=FullDisk())
    assert str(caught.value) == (
        f"about 5.6 GiB are needed for {workshop.root / 'envs'}, and 100.0 MiB are free"
    )
    assert caught.value.hint == "free some space, or choose another disk with --root DIR"
    assert nothing_was_built(workshop)


def test_paths_too_long_for_windows_are_told_by_exact_numbers_before_anything_is_built(
    workshop: Workshop, tmp_path: Path
) -> None:
    workshop.root = tmp_path / ("w" * (120 - len(str(tmp_path))))
    with pytest.raises(WorkspaceError) as caught:
        workshop.create(recorded("cpu-only-windows"))
    site = workshop.root / "envs" / f"000-2.15.0-cpu-py{MINOR}" / "Lib" / "site-packages"
    length = PathLength(len(str(site)), 126)
    assert length.too_many > 0
    assert str(caught.value) == f"paths under {site} would be too long: {length}"
    assert caught.value.hint == (
        f"choose a --root that is {length.too_many} characters shorter, or set LongPathsEnabled"
    )
    assert nothing_was_built(workshop)


# An interpreter that would have to be fetched.


def test_where_no_interpreter_can_be_fetched_one_that_is_there_must_do(workshop: Workshop) -> None:
    host = recorded("cpu-only-linux")
    (here,) = host.pythons
    old = replace(host, pythons=(replace(here, version=Version("3.10.14"), path="/usr/bin/python3.10"),))
    profile, run = Profile(name="default"), Programs(workshop.environ)

    plan = workshop.order(old, "2.15", profile=profile, run=run).plan
    assert plan.outcome is Outcome.FALLBACK
    assert plan.why[0] == "torch 2.15.0 (cpu): requires Python >=3.11, and this host has only Python 3.10"

    workshop.pythons = f"{workshop.index.root}/pythons"
    order = workshop.order(old, "2.15", profile=profile, run=run, python="3.13")
    assert (order.plan.outcome, order.build.python.source) == (Outcome.AS_REQUESTED, "fetch")


# Without the network.


def test_offline_everything_comes_from_the_cache_and_nobody_is_asked(
    workshop: Workshop, index: Index
) -> None:
    workshop.create(recorded("rtx-4090-driver-580"))
    index.forget()
    workshop.offline = True
    made = workshop.create(recorded("rtx-4090-driver-580"), again=True)
    assert (made.environment.number, made.environment.torch) == (2, "2.15.0+cu132")
    assert index.requests == []


def test_offline_what_the_cache_lacks_is_named(workshop: Workshop, index: Index) -> None:
    workshop.offline = True
    with pytest.raises(ToolFailed) as caught:
        workshop.create(recorded("rtx-4090-driver-580"))
    assert str(caught.value) == "--offline: the cache does not hold torch"
    assert index.requests == []


def nothing_was_built(workshop: Workshop) -> bool:
    store = workshop.store
    kept = [path for folder in ("locks", "plans") for path in (workshop.root / folder).glob("*")]
    there = list(store.environments.iterdir()) if store.environments.is_dir() else []
    return store.read().environments == () and kept == there == []


def test_a_lock_of_an_index_build_names_both_indexes(workshop: Workshop, index: Index) -> None:
    workshop.create(recorded("rx-7900-xtx"))
    lock = Lock.parse(workshop.store.lock_path(1).read_text("utf-8"), "the lock")
    assert lock.indexes == (index.packages, index.backend("rocm7.14"))
    assert lock.versions["rocm"] == "7.14.0"
