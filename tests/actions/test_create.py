"""`create` builds what was planned beside what is there, proves it and records it."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.wheels import Wheel, torch_wheel
from tests.support.workshop import MINOR, NOW, Workshop, recorded, using

from torchenv.environment.fingerprint import fingerprint
from torchenv.environment.inspect import describe
from torchenv.errors import ToolFailed
from torchenv.installers.uv import Uv
from torchenv.lockfile.lock import Lock
from torchenv.profile.model import BackendChoice, Packages, Profile, Torch
from torchenv.workspace.records import EnvironmentKind, Proof, State

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)

TAG = f"cp{MINOR.replace('.', '')}-cp{MINOR.replace('.', '')}"
WITH_VISION = Profile(name="vision", torch=Torch(packages=("torchvision",)))


@pytest.mark.parametrize(
    ("host", "prefer", "torch", "devices"),
    [
        ("rtx-4090-driver-580", "default", "2.15.0+cu132", ("NVIDIA GeForce RTX 4090",)),
        ("rtx-4090-driver-615", "newest", "2.15.0+cu134", ("NVIDIA GeForce RTX 4090",)),
        ("v100-driver-580", "default", "2.14.1+cu126", ("Tesla V100-SXM2-32GB",)),
        ("rx-7900-xtx", "default", "2.15.0+rocm7.14", ("AMD Radeon RX 7900 XTX",)),
        ("mi50", "default", "2.14.1+rocm7.2", ("AMD Instinct MI60 / MI50",)),
        ("arc-b580", "default", "2.15.0+xpu", ("Intel Arc B580 Graphics",)),
        ("cpu-only-linux", "default", "2.15.0+cpu", ()),
    ],
)
def test_each_kind_of_machine_gets_its_wheel_and_it_computes_there(
    workshop: Workshop, host: str, prefer: str, torch: str, devices: tuple[str, ...]
) -> None:
    made = workshop.create(recorded(host), profile=WITH_VISION, prefer=prefer)

    environment = made.environment
    release, _, backend = torch.partition("+")
    assert (environment.torch, environment.backend) == (torch, backend)
    assert environment.index == workshop.index.backend(backend)
    assert environment.name == f"{release}-{backend}-py{MINOR}"
    assert environment.path == str(workshop.root / "envs" / f"1-{environment.name}")
    assert (environment.kind, environment.state) == (EnvironmentKind.BUILT, State.READY)
    assert environment.proofs == (Proof(at=NOW, passed=True, what="create", devices=devices),)
    assert workshop.inside(made, "import torch, torchvision; print(torch.__version__)") == torch
    assert workshop.store.read().environments == (environment,)


def test_the_plan_and_the_lock_are_kept_with_it(workshop: Workshop) -> None:
    made = workshop.create(recorded("v100-driver-580"))
    store, number = workshop.store, made.environment.number
    plan = json.loads(store.plan_path(number).read_text("utf-8"))
    assert (plan["schema"], plan["torch"], plan["backend"]) == ("torchenv.plan/1", "2.14.1", "cu126")
    lock = Lock.parse(store.lock_path(number).read_text("utf-8"), "the lock")
    assert lock.digest == made.environment.lock
    assert lock.versions["torch"] == "2.14.1+cu126"
    assert made.environment.choice is not None
    assert made.environment.choice.outcome == "fallback"
    assert made.environment.choice.because == tuple(plan["why"])


def test_what_is_recorded_of_its_files_is_what_is_there(workshop: Workshop) -> None:
    made = workshop.create(recorded("cpu-only-linux"))
    there = fingerprint(describe(Path(made.environment.path)))
    assert there.digest == made.environment.fingerprint
    assert workshop.store.fingerprint_path(1).read_text("utf-8") == there.text


def test_no_file_is_shared_with_the_cache(workshop: Workshop) -> None:
    made = workshop.create(recorded("cpu-only-linux"))
    files = [path for path in Path(made.environment.path).rglob("*.py") if not path.is_symlink()]
    assert files
    assert {file.stat().st_nlink for file in files} == {1}


def test_ordinary_packages_never_come_from_torchs_index_where_stale_ones_lie(workshop: Workshop) -> None:
    profile = Profile(name="train", packages=Packages(requirements=("lightning",)))
    made = workshop.create(recorded("rtx-4090-driver-580"), profile=profile)
    versions = Lock.parse(workshop.store.lock_path(1).read_text("utf-8"), "the lock").versions
    assert versions["numpy"] == "2.3.0"
    assert versions["typing-extensions"] == "4.15.0"
    assert workshop.inside(made, "import numpy, lightning; print(numpy.__version__)") == "2.3.0"


def test_a_second_create_fetches_no_wheel(workshop: Workshop) -> None:
    profile = Profile(name="train", torch=WITH_VISION.torch, packages=Packages(requirements=("lightning",)))
    first = workshop.create(recorded("rtx-4090-driver-580"), profile=profile)
    assert any(item.startswith("torch-2.15.0") for item in workshop.index.wheels_fetched())
    workshop.index.forget()
    same = workshop.create(recorded("rtx-4090-driver-580"), profile=profile)
    assert (same.new, same.environment.number) == (False, 1)
    second = workshop.create(recorded("rtx-4090-driver-580"), profile=profile, again=True)
    assert workshop.index.wheels_fetched() == []
    assert (first.environment.number, second.environment.number) == (1, 3)
    assert second.environment.name == f"{first.environment.name}-3"
    assert second.environment.lock == first.environment.lock


def test_that_it_stands_on_condas_python_is_told_and_recorded(workshop: Workshop) -> None:
    host = recorded("cpu-only-linux")
    conda = tuple(replace(python, conda=True) for python in host.pythons)
    made = workshop.create(replace(host, pythons=conda), python=sys.executable)
    warning = (
        f"it is built on conda's Python {sys.executable} and stops working without that conda environment"
    )
    assert made.environment.choice is not None
    assert made.environment.choice.warnings == (warning,)
    assert f"note: {warning}" in workshop.said


# A wheel that is not what its index says.


LIES = {
    "another build": (
        {"label": "cu130"},
        (
            "torch is 2.15.0+cu130, and 2.15.0+cu132 was planned;"
            " torch was built for CUDA 13.0, and CUDA 13.2 was planned"
        ),
    ),
    "the CPU's build": (
        {"label": "cpu"},
        (
            "torch is 2.15.0+cpu, and 2.15.0+cu132 was planned;"
            " torch was built for CUDA None, and CUDA 13.2 was planned;"
            " torch sees no device,"
            " but this machine has NVIDIA GeForce RTX 4090"
            " (torch 2.15.0+cpu is a build for the CPU, and this machine has NVIDIA GeForce RTX 4090)"
        ),
    ),
    "no code for the card": (
        {"arch_flags": "sm_90 sm_100"},
        "torch has no kernels for NVIDIA GeForce RTX 4090 (8.9), only for 9.0, 10.0",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_torch_that_is_not_what_its_index_says_fails_the_run(workshop: Workshop, lie: str) -> None:
    told, differs = LIES[lie]
    workshop.index.remove("whl/cu132", "torch")
    workshop.index.add("whl/cu132", torch_wheel("2.15.0", "cu132", python=TAG, **told))  # type: ignore[arg-type]
    with pytest.raises(ToolFailed) as caught:
        workshop.create(recorded("rtx-4090-driver-580"))
    assert str(caught.value) == f"the new environment is not as planned: {differs}"
    assert nothing_was_left(workshop)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("raise RuntimeError('built for another CUDA')", "RuntimeError: built for another CUDA"),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_companion_that_does_not_import_fails_the_run(workshop: Workshop, content: str, said: str) -> None:
    workshop.index.remove("whl/cu132", "torchvision")
    files = {"torchvision/__init__.py": content}
    workshop.index.add("whl/cu132", Wheel(name="torchvision", version="0.29.2+cu132", files=files))
    with pytest.raises(ToolFailed) as caught:
        workshop.create(recorded("rtx-4090-driver-580"), profile=WITH_VISION)
    assert str(caught.value) == (
        f"the new environment is not as planned: torchvision does not import: {said}"
    )
    assert nothing_was_left(workshop)


def test_a_device_that_torch_does_not_see_fails_the_run_and_never_becomes_the_cpu(workshop: Workshop) -> None:
    with pytest.raises(ToolFailed) as caught:
        workshop.create(recorded("rtx-4090-driver-580"), devices="[]")
    assert str(caught.value) == (
        "the new environment is not as planned: torch sees no device,"
        " but this machine has NVIDIA GeForce RTX 4090"
    )
    assert nothing_was_left(workshop)


def test_a_device_that_does_not_compute_fails_the_run(workshop: Workshop) -> None:
    broken = '[{"name": "NVIDIA GeForce RTX 4090", "capability": [8, 9], "broken": true}]'
    with pytest.raises(ToolFailed) as caught:
        workshop.create(recorded("rtx-4090-driver-580"), devices=broken)
    assert str(caught.value) == (
        "the new environment is not as planned: NVIDIA GeForce RTX 4090 does not compute:"
        " RuntimeError: CUDA error: no kernel image is available for execution on the device"
        " (torch has no kernels for the GPU here)"
    )
    assert nothing_was_left(workshop)


def test_a_build_for_a_machine_that_is_not_at_hand_stays_unproven(workshop: Workshop) -> None:
    profile = Profile(name="node", backend=BackendChoice(only=("cu132",)))
    made = workshop.create(recorded("login-node"), profile=profile, by_hand=True)
    assert made.environment.torch == "2.15.0+cu132"
    assert not any(proof.devices for proof in made.environment.proofs)


# Beside, never over.


def test_the_environment_in_use_is_recorded_and_stays_as_it_is(workshop: Workshop, tmp_path: Path) -> None:
    old = workshop.old_environment(tmp_path / ".venv", "numpy<2.3")
    before = fingerprint(describe(old))
    made = workshop.create(
        using(recorded("v100-driver-580"), old, "2.14.1+cu126"), "2.14", profile=WITH_VISION
    )
    assert fingerprint(describe(old)) == before
    assert made.changed_by_others == ()
    manifest = workshop.store.read()
    fallback, new = manifest.environments
    assert (fallback.kind, fallback.path, fallback.torch) == (
        EnvironmentKind.ADOPTED,
        str(old),
        "2.14.1+cu126",
    )
    assert fallback.fingerprint == before.digest
    assert (fallback.reads, new.kind) == ("dcp<=2.14", EnvironmentKind.BUILT)
    assert manifest.current == fallback.number
    assert workshop.store.current.resolve() == old
    assert f"active: {old} (venv); it is only read" in workshop.said
    assert any(line.startswith(f"{old} unchanged (") for line in workshop.said)


def test_what_others_change_meanwhile_is_said_and_stops_nothing(workshop: Workshop, tmp_path: Path) -> None:
    old = workshop.old_environment(tmp_path / ".venv")
    site = next(old.glob("lib/python*/site-packages"))

    def meanwhile(runner):  # type: ignore[no-untyped-def]
        def run(command, *, timeout=None):  # type: ignore[no-untyped-def]
            if command.argv[1:2] == ("venv",):
                (site / "added.py").write_text("", "utf-8")
            return runner(command, timeout=timeout)

        return run

    made = workshop.create(using(recorded("cpu-only-linux"), old, "2.14.1+cu126"), run=meanwhile)
    assert made.new
    assert made.changed_by_others == (f"{(site / 'added.py').relative_to(old)}: was added",)


def test_a_directory_that_is_in_the_way_is_left_alone(workshop: Workshop) -> None:
    squatter = workshop.root / "envs" / f"1-2.15.0-cpu-py{MINOR}"
    squatter.mkdir(parents=True)
    (squatter / "thesis.txt").write_text("mine", "utf-8")
    made = workshop.create(recorded("cpu-only-linux"))
    assert made.environment.path == str(workshop.root / "envs" / f"2-2.15.0-cpu-py{MINOR}")
    assert (squatter / "thesis.txt").read_text("utf-8") == "mine"


def test_a_plan_that_equals_the_environment_in_use_makes_nothing(workshop: Workshop, tmp_path: Path) -> None:
    old = workshop.old_environment(tmp_path / ".venv", "numpy")
    host = using(recorded("v100-driver-580"), old, "2.14.1+cu126")
    made = workshop.create(host, "2.14")
    assert not made.new
    assert made.environment.path == str(old)
    assert [environment.kind for environment in workshop.store.read().environments] == [
        EnvironmentKind.ADOPTED
    ]
    assert not (workshop.root / "envs").exists()
    # One package more is another environment.
    more = Profile(name="train", packages=Packages(requirements=("lightning",)))
    assert workshop.create(host, "2.14", profile=more).new


def test_the_same_packages_on_another_python_are_another_environment(
    workshop: Workshop, tmp_path: Path
) -> None:
    old = workshop.old_environment(tmp_path / ".venv")
    settings = old / "pyvenv.cfg"
    settings.write_text(settings.read_text("utf-8").replace(f"version_info = {MINOR}", "version_info = 3.9"))
    made = workshop.create(using(recorded("v100-driver-580"), old, "2.14.1+cu126"), "2.14")
    assert made.new


def test_an_active_environment_without_torch_is_named_as_not_touched(
    workshop: Workshop, tmp_path: Path
) -> None:
    host = using(recorded("cpu-only-linux"), tmp_path / "other", "2.14.1")
    (seen,) = host.environments
    host = replace(host, environments=(replace(seen, torch=None),))
    made = workshop.create(host)
    assert made.fallback is None
    assert f"active in this shell: {tmp_path / 'other'}; it is not touched" in workshop.said


def test_an_environment_that_was_only_found_is_not_called_active(workshop: Workshop, tmp_path: Path) -> None:
    host = using(recorded("cpu-only-linux"), tmp_path / "other", "2.14.1")
    (seen,) = host.environments
    workshop.create(replace(host, environments=(replace(seen, torch=None, was_found=True),)))
    assert f"found in this project: {tmp_path / 'other'}; it is not touched" in workshop.said


def nothing_was_left(workshop: Workshop) -> bool:
    store = workshop.store
    ours = {workshop.root, workshop.root / "reserve"}  # the record and what is there for a full disk
    left = [file for file in workshop.root.rglob("*") if file.is_file() and file.parent not in ours]
    return store.read().environments == () and left == [] and list(store.environments.iterdir()) == []


def test_a_file_that_was_cut_after_it_was_fetched_is_refused_with_what_drops_it(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Uv.install

    def cut(uv: Uv, environment: Path, lock: Path) -> None:
        whole(uv, environment, lock)
        (module,) = environment.rglob("torch/version.py")
        module.unlink()
        module.write_text("")

    monkeypatch.setattr(Uv, "install", cut)
    with pytest.raises(
        ToolFailed, match=r"torch/version.py` of torch has 0 bytes, and its RECORD says"
    ) as raised:
        workshop.create(recorded("cpu-only-linux"))
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("run `uv cache clean torch`")
    assert nothing_was_left(workshop)
