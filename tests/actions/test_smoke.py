"""`smoke` judges what the checks inside tell, runs the profile's own commands, and records the outcome."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.workshop import NOW, PYTHON, recorded

from torchenv.actions.adopt import adopt
from torchenv.actions.inside import activation
from torchenv.actions.ports import Ports
from torchenv.actions.smoke import Result, Smoked, Step, Trial, smoke
from torchenv.catalogue import resources
from torchenv.environment.base_python import BasePython
from torchenv.errors import ToolFailed
from torchenv.host.model import Amd, AmdDevice, Host, Problem, Status
from torchenv.index.http import Network
from torchenv.index.pages import fetcher
from torchenv.installers.uv import Uv
from torchenv.plan import Question, Wish, resolve
from torchenv.profile.model import Smoke
from torchenv.system.process import Command, Completed, End, Programs
from torchenv.workspace.records import Environment, Proof, State
from torchenv.workspace.store import Store

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the made-up environments are laid out as on Unix")

GIT = "0123456789abcdef0123456789abcdef01234567"
CARD = "NVIDIA GeForce RTX 4090"
COMPUTES = ({"began": "matmul on cpu"}, {"step": "matmul on cpu", "result": "passed", "seconds": 0.1})


@dataclass
class Inside:
    """Answers for the script inside as the real one would; other programs really run."""

    programs: Programs
    tells: tuple[Mapping[str, Any], ...]
    code: int = 0
    end: End = End.EXITED
    err: str = ""
    asked: list[Command] = field(default_factory=list)

    def __call__(self, command: Command, *, timeout: float | None = None) -> Completed:
        self.asked.append(command)
        if command.argv[3:4] and Path(command.argv[3]).name == "smoke.py":
            lines = (f"\ntorchenv-smoke {json.dumps({'message': '', **line})}\n" for line in self.tells)
            return Completed(
                command, self.code, "warning: torch says much\n" + "".join(lines), self.err, self.end
            )
        return self.programs(command, timeout=timeout)


def torch(version: str, **more: Any) -> dict[str, Any]:
    """What torch would say of itself."""
    label = version.partition("+")[2]
    cuda = f"{label[2:-1]}.{label[-1]}" if label.startswith("cu") else None
    hip = label.removeprefix("rocm") if label.startswith("rocm") else None
    return {"torch": {"version": version, "cuda": cuda, "hip": hip, "git": GIT, **more}}


@dataclass
class Bench:
    """An environment that was planned for a machine, and the store that records it."""

    root: Path
    host: Host
    environment: Environment
    inside: Inside

    def smoke(self, profile: Smoke | None = None, **environ: str) -> Smoked:
        trial = Trial(
            environment=self.environment,
            smoke=profile or Smoke(),
            profile="train",
            packages=("torchvision",),
            catalogue=resources.catalogue(),
            host=self.host,
            node="node7",
            directory=self.root.parent,
            environ={"PATH": os.environ["PATH"], **environ},
        )
        return smoke(trial, self.ports)

    @property
    def store(self) -> Store:
        return Store(self.root)

    @property
    def ports(self) -> Ports:
        return Ports(
            store=self.store,
            installer=Uv(self.inside, program=Path("uv")),
            run=self.inside,
            fetch=fetcher(Network()),
            say=lambda _: None,
            now=lambda: NOW,
            system="linux",
        )

    def now_recorded(self) -> Environment:
        return self.store.read().number(self.environment.number)


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    def make(host: Host | str, *tells: Mapping[str, Any], code: int = 0, end: End = End.EXITED) -> Bench:
        machine = recorded(host) if isinstance(host, str) else host
        store = Store(tmp_path / "workspace")
        plan = resolve(Question(host=machine, wish=Wish(version="2.15"), catalogue=resources.catalogue()))
        assert plan.build is not None
        with store.hold("a test"):
            manifest, new = store.read().begin(
                plan.build.name,
                within=store.environments,
                python=BasePython(PYTHON, sys.executable),
                at=NOW,
                torch=plan.build.torch,
                backend=plan.build.backend.tag,
                activation=activation(plan, machine),
            )
            venv.create(new.path, symlinks=True)
            store.write_plan(new.number, json.dumps(plan.to_document()))
            manifest, ready = manifest.commit(new)
            store.write(manifest)
        inside = Inside(Programs({"PATH": os.environ["PATH"]}), tells, code, end)
        return Bench(store.root, machine, ready, inside)

    return make


def test_what_computes_is_proven_with_when_where_and_what(bench: Callable[..., Bench]) -> None:
    on = bench("rtx-4090-driver-580", torch("2.15.0+cu132"), {"devices": [CARD]}, *COMPUTES)
    smoked = on.smoke()
    proof = Proof(at=NOW, passed=True, what="smoke", host="node7", devices=(CARD,), git=GIT, profile="train")
    assert [replace(step, seconds=0.0) for step in smoked.steps[:2]] == [
        Step("declared requirements hold", Result.PASSED),
        Step(
            "libraries are as installed",
            Result.SKIPPED,
            message="no installer recorded their digests, so nothing was checked",
        ),
    ]
    assert smoked.steps[2:] == (
        Step("matmul on cpu", Result.PASSED, 0.1),
        Step("torch is what its label says", Result.PASSED),
        Step("a planned device is there", Result.PASSED, message=CARD),
    )
    assert smoked.proof == proof
    assert on.now_recorded() == replace(
        on.environment, state=State.PROVEN, proofs=(*on.environment.proofs, proof)
    )
    assert smoked.log == on.root / "logs" / "1" / "smoke-20261130T080000Z.txt"
    assert "warning: torch says much" in smoked.log.read_text("utf-8")


def test_the_checks_run_alone_in_the_environments_own_python(bench: Callable[..., Bench]) -> None:
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES)
    on.smoke()
    (command,) = on.inside.asked
    python = str(Path(on.environment.path) / "bin" / "python")
    assert command.argv[:3] == (python, "-I", "-B")
    assert json.loads(command.argv[4]) == {"packages": ["torchvision"], "scratch": str(on.root)}
    assert command.env == {"VIRTUAL_ENV": on.environment.path}
    assert command.without == ("PYTHONHOME", "PYTHONPATH")


def test_a_step_that_fails_fails_the_environment(bench: Callable[..., Bench]) -> None:
    wrong = {"step": "gloo, two ranks", "result": "failed", "seconds": 1.0, "message": "TimeoutError: late"}
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES, wrong)
    smoked = on.smoke(Smoke(commands=(("python", "-c", "pass"),)))
    assert smoked.proof.said == ("gloo, two ranks: TimeoutError: late",)
    assert on.now_recorded().state is State.FAILED
    assert smoked.steps[-1] == Step(
        "python -c pass", Result.SKIPPED, message="not run, since a check before it failed"
    )


@pytest.mark.parametrize(
    ("code", "end", "said"),
    [
        (-11, End.EXITED, "the process was ended by SIGSEGV"),
        (124, End.OUT_OF_TIME, "it was stopped after 600 s"),
        (3, End.EXITED, "the process ended with code 3: warning: torch says much"),
    ],
)
def test_a_process_that_dies_tells_in_which_step(
    bench: Callable[..., Bench], code: int, end: End, said: str
) -> None:
    on = bench("cpu-only-linux", *COMPUTES, {"began": "torch.compile on cpu"}, code=code, end=end)
    smoked = on.smoke()
    last = smoked.steps[-1]
    assert (last.name, last.result) == ("torch.compile on cpu", Result.FAILED)
    assert last.message.startswith(said.partition(": warning")[0])


def test_a_process_that_dies_between_two_steps_has_failed_too(bench: Callable[..., Bench]) -> None:
    on = bench("cpu-only-linux", *COMPUTES, code=1)
    smoked = on.smoke()
    assert (smoked.steps[-1].name, smoked.steps[-1].result) == ("between two checks", Result.FAILED)
    assert on.now_recorded().state is State.FAILED


def test_a_python_that_tells_nothing_is_no_verdict(bench: Callable[..., Bench]) -> None:
    on = bench("cpu-only-linux", code=1)
    with pytest.raises(ToolFailed, match="could not run the smoke checks inside the environment"):
        on.smoke()
    assert on.now_recorded() == on.environment


def test_a_plan_for_a_gpu_never_passes_on_the_cpu(bench: Callable[..., Bench]) -> None:
    on = bench("rtx-4090-driver-580", torch("2.15.0+cu132"), {"devices": []}, *COMPUTES)
    smoked = on.smoke()
    assert smoked.steps[-1] == Step(
        "a planned device is there",
        Result.FAILED,
        message=f"{CARD} was planned for, but torch sees no device here: only the CPU was tested",
    )
    assert on.now_recorded().state is State.FAILED


def test_an_environment_of_someone_else_must_use_the_card_that_is_there(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    on = bench("rtx-4090-driver-580", torch("2.14.1+cu126"), {"devices": []}, *COMPUTES)
    venv.create(tmp_path / "old", symlinks=True)
    (site,) = tmp_path.glob("old/lib/python3*/site-packages")
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text("__version__ = '2.14.1+cu126'\n")
    on.environment = adopt(tmp_path / "old", resources.catalogue(), on.ports).environment
    said = f"{CARD} was planned for, but torch sees no device here: only the CPU was tested"
    assert on.smoke().proof.said == (f"a planned device is there: {said}",)


def test_a_card_beside_integrated_graphics_is_shown_alone_unless_a_mask_is_set(
    bench: Callable[..., Bench],
) -> None:
    on = bench("raphael-igpu-beside-rx-9060", torch("2.15.0+rocm7.14"), {"devices": ["RX"]}, *COMPUTES)
    on.smoke()
    on.smoke(HIP_VISIBLE_DEVICES="0")
    assert [command.env.get("HIP_VISIBLE_DEVICES") for command in on.inside.asked] == ["1", None]


def test_the_override_that_makes_rocm_see_another_chip_is_taken_away(bench: Callable[..., Bench]) -> None:
    card = AmdDevice(index=0, name="Radeon 8060S Graphics", gfx="gfx1151", override="gfx900", integrated=True)
    host = replace(recorded("strix-halo-gfx1151"), amd=Amd(status=Status.FOUND, devices=(card,)))
    on = bench(host, torch("2.15.0+rocm7.14"), {"devices": [card.name]}, *COMPUTES)
    assert on.smoke(Smoke(commands=(("python", "-c", "pass"),))).proof.passed
    assert [command.without for command in on.inside.asked] == [
        ("HSA_OVERRIDE_GFX_VERSION", "PYTHONHOME", "PYTHONPATH")
    ] * 2


@pytest.mark.parametrize(
    ("version", "more", "said"),
    [
        (
            "2.15.0+cu126",
            {"cuda": "13.2", "compiled_cuda": "13.2"},
            (
                "torch says that it is 2.15.0+cu126, and 2.15.0+cpu was recorded;"
                " its label cu126 means CUDA 12.6, and it was compiled for CUDA 13.2"
            ),
        ),
        (
            "2.15.0+cpu",
            {"compiled_cuda": "13.2"},
            "its label is cpu, and it was compiled for CUDA 13.2",
        ),
        (
            "2.15.0",
            {"cuda": "13.0", "compiled_cuda": "13.2"},
            "torch.version says CUDA 13.0, and it was compiled for CUDA 13.2",
        ),
        ("2.14.1", {}, "torch says that it is 2.14.1, and 2.15.0+cpu was recorded"),
    ],
)
def test_a_torch_that_is_not_what_its_label_says_is_found_out(
    bench: Callable[..., Bench], version: str, more: Mapping[str, Any], said: str
) -> None:
    on = bench("cpu-only-linux", torch(version, **more), *COMPUTES)
    assert on.smoke().proof.said == (f"torch is what its label says: {said}",)


def test_the_profiles_commands_run_activated_where_the_profile_is(bench: Callable[..., Bench]) -> None:
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES)
    code = "import os, sys; print(sys.prefix, os.environ['VIRTUAL_ENV'], os.getcwd())"
    smoked = on.smoke(Smoke(commands=(("python", "-c", code),)))
    assert smoked.proof.passed
    path = on.environment.path
    assert f"{path} {path} {on.root.parent}" in smoked.log.read_text("utf-8")


def test_a_command_that_fails_is_a_failure_in_its_own_words(bench: Callable[..., Bench]) -> None:
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES)
    smoked = on.smoke(Smoke(commands=(("python", "-c", "raise SystemExit('loss is NaN')"),)))
    assert smoked.steps[-1].result is Result.FAILED
    assert smoked.steps[-1].message == "loss is NaN (code 1)"


def test_a_command_that_runs_too_long_is_stopped(bench: Callable[..., Bench]) -> None:
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES)
    smoked = on.smoke(Smoke(commands=(("python", "-c", "import time; time.sleep(600)"),), timeout=0.5))
    assert smoked.steps[-1].message == "it was stopped after 0.5 s"


def test_a_command_that_cannot_start_says_nothing_of_the_environment(bench: Callable[..., Bench]) -> None:
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES)
    with pytest.raises(ToolFailed) as raised:
        on.smoke(Smoke(commands=(("no-such-trainer", "--quick"),)))
    assert str(raised.value) == (
        f"could not start no-such-trainer in environment {on.environment}: program not found"
    )
    assert (on.inside.asked, on.now_recorded()) == ([], on.environment)


def test_an_environment_that_failed_is_proven_once_it_passes(bench: Callable[..., Bench]) -> None:
    on = bench("rtx-4090-driver-580", torch("2.15.0+cu132"), {"devices": []}, *COMPUTES)
    on.smoke()
    on.inside.tells = (torch("2.15.0+cu132"), {"devices": [CARD]}, *COMPUTES)
    on.smoke()
    assert on.now_recorded().state is State.PROVEN
    assert [proof.passed for proof in on.now_recorded().proofs] == [False, True]


def fill(
    environment: Environment, name: str, version: str, *requires: str, library: bytes | None = None
) -> Path:
    """Put a package into an environment, with a library whose digest RECORD has."""
    (site,) = Path(environment.path).glob("lib/python3*/site-packages")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    wanted = "".join(f"Requires-Dist: {require}\n" for require in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{wanted}")
    path = site / name / "lib" / f"lib{name}.so.1"
    if library is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(library)
        digest = base64.urlsafe_b64encode(hashlib.sha256(library).digest()).rstrip(b"=").decode()
        (info / "RECORD").write_text(f"{name}/lib/lib{name}.so.1,sha256={digest},{len(library)}\n")
    return path


def test_a_flipped_byte_in_a_library_fails_before_anything_is_run(bench: Callable[..., Bench]) -> None:
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES)
    library = fill(on.environment, "torch", "2.15.0", library=b"code")
    assert [step.message for step in on.smoke().steps if "libraries" in step.name] == ["1 files hashed"]
    library.write_bytes(b"code"[::-1])
    inside = library.relative_to(on.environment.path).as_posix()
    assert on.smoke().proof.said == (f"libraries are as installed: {inside}: was changed",)
    assert on.now_recorded().state is State.FAILED


def test_a_requirement_that_is_not_met_fails(bench: Callable[..., Bench]) -> None:
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES)
    fill(on.environment, "numpy", "1.26.4")
    fill(on.environment, "torchvision", "0.30.0", "numpy>=2", "torch==2.15.0")
    assert on.smoke().proof.said == (
        (
            "declared requirements hold: torchvision 0.30.0 requires numpy>=2, and has 1.26.4;"
            " torchvision 0.30.0 requires torch==2.15.0, and has none"
        ),
    )


def test_what_the_environment_holds_of_torchs_family_must_import_though_no_profile_lists_it(
    bench: Callable[..., Bench],
) -> None:
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES)
    for name in ("torchaudio", "triton", "numpy", "rich"):
        fill(on.environment, name, "1.0")
    on.smoke()
    (command,) = on.inside.asked
    assert json.loads(command.argv[4])["packages"] == ["torchvision", "numpy", "torchaudio", "triton"]


def test_a_mask_that_hides_every_planned_device_is_cleared_and_named(bench: Callable[..., Bench]) -> None:
    on = bench("rtx-4090-driver-580", torch("2.15.0+cu132"), {"devices": [CARD]}, *COMPUTES)
    mask = Problem("mask-hides-everything", "CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES= hides every GPU")
    on.host = replace(on.host, problems=(mask,))
    smoked = on.smoke(Smoke(commands=(("python", "-c", "pass"),)), CUDA_VISIBLE_DEVICES="")
    assert smoked.proof.passed
    assert all("CUDA_VISIBLE_DEVICES" in command.without for command in on.inside.asked)
    message = "CUDA_VISIBLE_DEVICES= hides every planned device; the checks ran without it"
    assert Step("no mask hides the devices", Result.SKIPPED, message=message) in smoked.steps


def test_a_warning_of_a_card_that_the_code_of_its_major_serves_is_harmless(
    bench: Callable[..., Bench],
) -> None:
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES)
    on.inside.err = (
        "UserWarning: Found GPU0 NVIDIA GB10 which is of cuda capability 12.1.\n"
        "    Minimum and Maximum cuda capability supported by this version of PyTorch is\n"
        "    (8.0) - (12.0)\n"
    )
    message = "torch warns of compute capability 12.1: its code for 12.0 runs on it"
    smoked = on.smoke()
    assert Step("known harmless warning", Result.PASSED, message=message) in smoked.steps
    on.inside.err = on.inside.err.replace("12.1", "13.0")
    assert "known harmless warning" not in {step.name for step in on.smoke().steps}


def test_a_proof_names_the_profile_and_its_commands(bench: Callable[..., Bench]) -> None:
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES)
    proof = on.smoke(Smoke(commands=(("python", "-c", "pass # all"),))).proof
    assert (proof.profile, proof.commands) == ("train", ("python -c 'pass # all'",))
    assert on.now_recorded().proofs[-1] == proof


def test_what_a_signal_means_is_told_as_the_doctor_tells_it(bench: Callable[..., Bench]) -> None:
    on = bench("cpu-only-linux", *COMPUTES, {"began": "import torch"}, code=-4)
    assert on.smoke().steps[-1].message == (
        "the process was ended by SIGILL: the processor lacks instructions that the build uses"
    )


def test_a_step_that_fails_with_a_known_text_is_told_with_its_cause(bench: Callable[..., Bench]) -> None:
    error = "RuntimeError: Cannot find a working triton installation."
    wrong = {"step": "torch.compile on cpu", "result": "failed", "seconds": 1.0, "message": error}
    on = bench("cpu-only-linux", torch("2.15.0+cpu"), *COMPUTES, wrong)
    (step,) = [step for step in on.smoke().steps if step.result is Result.FAILED]
    assert step.message == f"{error} (torch.compile finds no working triton)"


def test_a_device_that_is_not_seen_is_told_with_the_machines_cause(bench: Callable[..., Bench]) -> None:
    on = bench("rtx-4090-driver-580", torch("2.15.0+cu132"), {"devices": []}, *COMPUTES)
    site = next(Path(on.environment.path).glob("lib/python3*/site-packages"))
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text("__version__ = '2.15.0+cu132'\n")
    lost = Problem("gpu-lost", "nvidia-smi", "GPU 0 has fallen off the bus")
    on.host = replace(on.host, problems=(lost,))
    (said,) = on.smoke().proof.said
    assert said.endswith("only the CPU was tested (GPU 0 has fallen off the bus)")
