"""The script inside tells each step as it begins and as it ends, whatever is imported in it."""

from __future__ import annotations

import json
import os
import runpy
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from torchenv.actions.smoke import SCRIPT, Result, SmokeOutput, parse_output
from torchenv.system.process import Command, Programs

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the made-up environments are laid out as on Unix")

# Enough of a torch to be imported and described; it cannot compute.
TORCH = {
    "torch/__init__.py": (
        "from torch import _C, backends, cuda, distributed, version\n__version__ = '2.15.0+cu132'\n"
    ),
    "torch/version.py": "cuda = '13.2'\nhip = None\nxpu = None\ngit_version = 'abc'\n",
    "torch/_C.py": "def _cuda_getCompiledVersion():\n    return 13020\n",
    "torch/cuda.py": "def is_available():\n    return False\n",
    "torch/backends.py": "",
    "torch/distributed.py": "def is_available():\n    return False\n",
}

Look = Callable[..., SmokeOutput]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Run the script in an environment that holds these files, and understand what it tells."""

    def run(files: Mapping[str, str], *packages: str) -> SmokeOutput:
        venv.create(tmp_path / "environment", symlinks=True)
        (site,) = tmp_path.glob("environment/lib/python3*/site-packages")
        for name, text in files.items():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_text(text, "utf-8")
        python = str(tmp_path / "environment" / "bin" / "python")
        request = json.dumps({"packages": packages})
        done = Programs({"PATH": ""})(Command((python, "-I", "-B", str(SCRIPT), request)))
        return parse_output(done, 60.0)

    return run


def distribution(name: str, modules: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a distribution, as an installer leaves them."""
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    record = "".join(f"{module},,\n" for module in modules)
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n"
    return {**modules, f"{info}/METADATA": metadata, f"{info}/RECORD": record}


def results(seen: SmokeOutput) -> dict[str, tuple[Result, str]]:
    return {step.name: (step.result, step.message) for step in seen.steps}


def test_without_torch_that_is_the_one_step_that_failed(look: Look) -> None:
    seen = look({}, "numpy")
    assert results(seen) == {"import torch": (Result.FAILED, "ModuleNotFoundError: No module named 'torch'")}


def test_torch_is_described_with_what_its_compiled_part_knows(look: Look) -> None:
    torch = look(TORCH).torch
    assert (torch["version"], torch["cuda"], torch["compiled_cuda"]) == ("2.15.0+cu132", "13.2", "13.2")
    assert torch["git"] == "abc"


def test_a_torch_that_cannot_compute_fails_and_one_built_without_a_part_skips_it(look: Look) -> None:
    found = results(look(TORCH))
    assert found["import torch"] == (Result.PASSED, "torch 2.15.0+cu132")
    assert found["matmul on cpu"] == (
        Result.FAILED,
        "AttributeError: module 'torch' has no attribute 'arange'",
    )
    without = (Result.SKIPPED, "this torch is built without torch.distributed")
    assert found["distributed checkpoint"] == found["gloo, two ranks"] == without


def test_each_package_is_imported_by_the_modules_that_it_brings(look: Look) -> None:
    files = {
        **distribution("Pillow", {"PIL/__init__.py": "", "_pil.py": "raise RuntimeError('private')\n"}),
        **distribution(
            "two_faced", {"one.py": "", "other.py": "raise RuntimeError('no CUDA here\\nat all')\n"}
        ),
        **distribution("tidy", {"tidy.py": "", "tests/__init__.py": "import pytest\n"}),
        **distribution("only-data", {"only_data-stubs/__init__.pyi": ""}),
    }
    packages = ("pillow", "tidy", "two-faced", "only-data", "gone")
    found = results(look({**TORCH, **files}, *packages))
    assert {name: found[f"import {name}"] for name in packages} == {
        "pillow": (Result.PASSED, "1.0"),
        "tidy": (Result.PASSED, "1.0"),
        "two-faced": (Result.FAILED, "RuntimeError: no CUDA here"),
        "only-data": (Result.SKIPPED, "only-data 1.0 brings no module to import"),
        "gone": (Result.FAILED, "PackageNotFoundError: No package metadata was found for gone"),
    }


@pytest.mark.parametrize(
    ("crash", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the process was ended by SIGSEGV"),
        ("import os; os._exit(3)", "the process ended with code 3: "),
    ],
)
def test_a_crash_is_told_of_the_package_that_was_being_imported(look: Look, crash: str, said: str) -> None:
    seen = look({**TORCH, **distribution("fused", {"fused.py": crash})}, "fused", "numpy")
    last = seen.steps[-1]
    assert (last.name, last.result) == ("import fused", Result.FAILED)
    assert last.message.startswith(said)


def test_scratch_lies_beside_the_workspace_where_the_temporary_directory_runs_no_code_or_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_scratch = runpy.run_path(str(SCRIPT))["choose_scratch"]
    temporary, workspace = tmp_path / "temporary", tmp_path / "workspace"
    temporary.mkdir()
    workspace.mkdir()
    real = list(os.statvfs(tmp_path))
    roomy = os.statvfs_result((*real[:4], (1 << 40) // real[1], *real[5:8], 0, 255))
    # Mounts, which a test cannot make.
    noexec = os.statvfs_result((*roomy[:8], os.ST_NOEXEC, 255))
    full = os.statvfs_result((*roomy[:4], 0, *roomy[5:]))
    for found, chosen in ((roomy, temporary), (noexec, workspace), (full, workspace)):
        answers = {temporary: found, workspace: roomy}
        monkeypatch.setattr(os, "statvfs", answers.__getitem__)
        assert choose_scratch([temporary, workspace]) == str(chosen)
