"""Real torch is proven on the CPU, and each way of breaking it is found with its cause."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from torchenv.installers.uv import uv_program

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform != "linux", reason="the breakages are those of Linux wheels"),
]


@dataclass(frozen=True)
class Workspace:
    """A workspace with an adopted torch 2.14.1 as environment 1 and 2.15.0 as environment 2."""

    root: Path

    def torchenv(self, *words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in a directory without a project of its own."""
        environ = {**os.environ, **({"PATH": path} if path is not None else {})}
        return subprocess.run(
            [sys.executable, "-m", "torchenv", "--root", str(self.root), *words],
            cwd=self.root.parent,
            env=environ,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    def environment(self, number: int) -> dict[str, Any]:
        shown = self.torchenv("show", str(number), "--json")
        document: dict[str, Any] = json.loads(shown.stdout)
        return document

    def smoke(self, number: int, profile: str = "", *, path: str | None = None) -> tuple[int, dict[str, Any]]:
        """Smoke an environment with a profile's sections; give the exit code and the document."""
        file = self.root.parent / "profile.toml"
        file.write_text(f"schema = 1\n{profile}", "utf-8")
        done = self.torchenv("smoke", str(number), "--profile", str(file), "--json", path=path)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def broken(self, name: str, spoil: Callable[[Path], None]) -> int:
        """Adopt a copy of the 2.15.0 environment whose site-packages were spoiled; give its number.

        The copy shares its inodes with what it was made from, so a file is only ever deleted or replaced.
        """
        copy = self.root.parent / name
        shutil.copytree(self.environment(2)["path"], copy, symlinks=True, copy_function=os.link)
        spoil(next(copy.glob("lib/python3*/site-packages")))
        adopted = self.torchenv("adopt", str(copy))
        assert adopted.returncode == 0, adopted.stderr
        return int(adopted.stdout)


@pytest.fixture(scope="module")
def workspace(old_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    made = Workspace(tmp_path_factory.mktemp("smoke") / "workspace")
    for words in (("adopt", str(old_environment)), ("create", "2.15.0")):
        done = made.torchenv(*words)
        assert done.returncode == 0, done.stderr
    yield made
    shutil.rmtree(made.root.parent)


@pytest.fixture
def no_compiler(tmp_path: Path) -> str:
    """A PATH without a C++ compiler, so that `torch.compile`, half a minute each time, is skipped."""
    return str(tmp_path)


@pytest.mark.parametrize(("number", "torch"), [(1, "2.14.1"), (2, "2.15.0")])
def test_real_torch_is_proven_on_the_cpu(workspace: Workspace, number: int, torch: str) -> None:
    own = '[smoke]\ncommands = [["python", "-c", "import torch; assert torch.ones(2).sum() == 2"]]\n'
    code, document = workspace.smoke(number, own)
    results = {step["name"]: step["result"] for step in document["steps"]}
    assert code == 0, document
    # Environment 1 was made by pip, which keeps no lock file, and has numpy; 2 was built from its lock file.
    others = ["import numpy"] if number == 1 else ["packages are those of the lock file"]
    assert results == dict.fromkeys(
        [
            *others,
            "declared requirements hold",
            "libraries are as installed",
            "import torch",
            "matmul on cpu",
            "convolution on cpu",
            "backward on cpu",
            "torch.compile on cpu",
            "distributed checkpoint",
            "gloo, one rank",
            "gloo, two ranks",
            "import triton",
            "torch is what its label says",
            "python -c import torch; assert torch.ones(2).sum() == 2",
        ],
        "passed",
    )
    recorded = workspace.environment(number)
    assert recorded["state"] == "proven"
    assert recorded["torch"].startswith(torch)
    proof = recorded["proof"][-1]
    assert (proof["what"], proof["passed"], proof["host"]) == ("smoke", True, os.uname().nodename)
    assert len(proof["git"]) == 40


def test_without_a_compiler_compiling_is_skipped_and_says_so(workspace: Workspace, no_compiler: str) -> None:
    code, document = workspace.smoke(2, path=no_compiler)
    (step,) = [step for step in document["steps"] if step["name"] == "torch.compile on cpu"]
    assert (code, step["result"], step["message"]) == (
        0,
        "skipped",
        "there is no C++ compiler on this machine, which torch.compile needs",
    )


def test_a_companion_of_another_cuda_is_named_with_the_one_that_fits(
    workspace: Workspace, no_compiler: str
) -> None:
    def spoil(site: Path) -> None:
        _install(site, "torchaudio==2.11.0")

    number = workspace.broken("companion", spoil)
    code, document = workspace.smoke(number, '[torch]\npackages = ["torchaudio"]\n', path=no_compiler)
    message = failed(document)["import torchaudio"]
    assert code == 1
    assert message.startswith(
        "RuntimeError: Detected that PyTorch and TorchAudio were compiled with different"
    )
    assert message.endswith("(torchaudio 2.11.0 is installed beside torch 2.15.0, whose companion is 2.11.1)")
    assert workspace.environment(number)["state"] == "failed"


def test_a_shared_library_that_was_removed_is_named_with_its_package(
    workspace: Workspace, no_compiler: str
) -> None:
    def spoil(site: Path) -> None:
        (site / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9").unlink()

    code, document = workspace.smoke(workspace.broken("library", spoil), path=no_compiler)
    message = failed(document)["import torch"]
    assert code == 1
    assert "libcudnn.so" in message
    assert "/nvidia/cudnn/lib/libcudnn.so.9 of nvidia-cudnn-cu13 9.26.0.51 is missing" in message


def test_an_extension_that_needs_curand_is_told_that_torch_brings_it_no_longer(
    workspace: Workspace, no_compiler: str, tmp_path: Path
) -> None:
    number = workspace.broken("extension", lambda site: _build_curand_user(site, tmp_path))
    own = '[packages]\nrequirements = ["curand-user"]\n'
    code, document = workspace.smoke(number, own, path=no_compiler)
    assert code == 1
    assert failed(document) == {
        "import curand-user": (
            "ImportError: libcurand.so.10: cannot open shared object file: No such file or directory (torch"
            " no longer brings cuRAND from 2.15 on: add nvidia-curand to the profile's packages, and load it"
            " before the extension or give the extension an RPATH to it)"
        )
    }


def test_a_wrong_local_label_is_found_by_asking_the_compiled_part(
    workspace: Workspace, no_compiler: str
) -> None:
    def spoil(site: Path) -> None:
        version = site / "torch" / "version.py"
        text = version.read_text("utf-8")
        version.unlink()
        version.write_text(text.replace("2.15.0+cu132", "2.15.0+cu126"), "utf-8")

    code, document = workspace.smoke(workspace.broken("label", spoil), path=no_compiler)
    assert code == 1
    assert failed(document) == {
        "torch is what its label says": "its label cu126 means CUDA 12.6, and it was compiled for CUDA 13.2"
    }


TRAIN = """\
import json, os, torch
torch.manual_seed(7)
torch.set_num_threads(1)
inputs = torch.randn(64, 8)
targets = inputs @ torch.randn(8, 1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
for _ in range(50):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
"""


@pytest.mark.parametrize(
    ("rate", "code", "verdicts"),
    [
        ("0.05", 0, {"same", "within tolerance"}),
        ("0.05 if torch.__version__ < '2.15' else 0.04", 1, {"worse"}),
    ],
    ids=["honest", "planted"],
)
def test_the_same_training_evaluates_alike_and_a_planted_change_is_caught(
    workspace: Workspace, rate: str, code: int, verdicts: set[str]
) -> None:
    directory = workspace.root.parent
    (directory / "evaluate.py").write_text(TRAIN.replace("RATE", rate), "utf-8")
    profile = directory / "evaluation.toml"
    profile.write_text(
        'schema = 1\n[evaluation]\ncommands = [["python", "evaluate.py"]]\n'
        'metrics = { loss = { better = "lower", relative = 0.001 } }\n',
        "utf-8",
    )
    done = workspace.torchenv("evaluate", "2", "--against", "1", "--profile", str(profile), "--json")
    document = json.loads(done.stdout)
    assert {metric["verdict"] for metric in document["metrics"]} <= verdicts, document
    assert (done.returncode, document["problems"]) == (code, [])


def failed(document: Mapping[str, Any]) -> dict[str, str]:
    return {step["name"]: step["message"] for step in document["steps"] if step["result"] == "failed"}


def _install(site: Path, requirement: str) -> None:
    python = site.parents[2] / "bin" / "python"
    subprocess.run(
        [str(uv_program()), "pip", "install", "--quiet", "--no-deps", "--python", str(python), requirement],
        check=True,
    )


def _build_curand_user(site: Path, scratch: Path) -> None:
    """Build an extension against a library that is not there afterwards, as a wheel would bring it."""
    compiler = sysconfig.get_config_var("CC").split()[0]
    (scratch / "curand.c").write_text("int curandCreateGenerator(void) { return 0; }\n")
    (scratch / "user.c").write_text(
        "extern int curandCreateGenerator(void);\nvoid *PyInit_curand_user(void);\n"
        "void *PyInit_curand_user(void) { return curandCreateGenerator() ? (void *)1 : (void *)0; }\n"
    )
    library = scratch / "libcurand.so.10"
    for words in (
        ["-Wl,-soname,libcurand.so.10", "-o", str(library), str(scratch / "curand.c")],
        ["-o", str(site / "curand_user.so"), str(scratch / "user.c"), str(library)],
    ):
        subprocess.run([compiler, "-shared", "-fPIC", *words], check=True)
    info = site / "curand_user-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: curand-user\nVersion: 1.0\n")
    (info / "RECORD").write_text("curand_user.so,,\ncurand_user-1.0.dist-info/METADATA,,\n")
