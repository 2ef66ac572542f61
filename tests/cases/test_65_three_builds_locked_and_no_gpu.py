"""A project that offers torch from three places by extras of its pyproject.toml, with a target for each."""

from __future__ import annotations

import pytest
from tests.support.index import Index
from tests.support.terminal import Terminal
from tests.support.workshop import MINOR

PYPROJECT = """\
[project]
name = "moo"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["numpy"]
[project.optional-dependencies]
cpu = ["torch>=2.8.0"]
cu132 = ["torch>=2.8.0"]
pypi = ["torch>=2.8.0"]
[tool.uv]
conflicts = [[{ extra = "cpu" }, { extra = "cu132" }, { extra = "pypi" }]]
[tool.uv.sources]
torch = [
  { index = "pytorch-cpu", extra = "cpu" },
  { index = "pytorch-cu132", extra = "cu132" },
  { index = "pytorch-pypi", extra = "pypi" },
]
[[tool.uv.index]]
name = "pytorch-cpu"
url = "https://mirror.example/whl/cpu"
explicit = true
[[tool.uv.index]]
name = "pytorch-cu132"
url = "https://mirror.example/whl/cu132"
explicit = true
[[tool.uv.index]]
name = "pytorch-pypi"
url = "https://mirror.example/simple/"
explicit = true
"""
TARGETS = {"cpu": 'backend = "cpu"', "cu132": 'backend = "cu132"', "pypi": 'index = "packages"'}
SMI = """\
#!/bin/sh
echo "index, uuid, name, driver_version, memory.total [MiB], compute_cap, mig.mode.current"
echo "0, GPU-00000000-0000-0000-0000-000000000000, NVIDIA GeForce RTX 4090, 580.65.06, 24564, 8.9, [N/A]"
"""


@pytest.fixture
def project(terminal: Terminal, index: Index) -> Terminal:
    profile = 'schema = 1\nname = "moo"\n[torch]\nversion = "2.15"\n[packages]\nfrom = ["pyproject.toml"]\n'
    profile += f'[index]\ntorch = "{index.torch_root}"\npackages = "{index.packages}"\n'
    for name, place in TARGETS.items():
        profile += f'[[target]]\nname = "{name}"\nplatform = "linux-x86_64"\npython = "{MINOR}"\n{place}\n'
    (terminal.cwd / "torchenv.toml").write_text(profile, "utf-8")
    (terminal.cwd / "pyproject.toml").write_text(PYPROJECT, "utf-8")
    return terminal


def test_a_machine_without_a_gpu_takes_the_cpu_target_and_one_with_it_that_of_cuda(project: Terminal) -> None:
    locked = project.type("lock")
    assert locked.code == 0, locked.err
    assert sorted(path.name for path in project.cwd.glob("pylock.*.toml")) == [
        f"pylock.{name}.toml" for name in sorted(TARGETS)
    ]
    assert project.type("sync", "--dry-run").out.startswith("target cpu (linux-x86_64, torch 2.15.0+cpu)")

    programs = project.cwd.parent / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(SMI, "utf-8")
    (programs / "nvidia-smi").chmod(0o755)
    decided = project.type("sync", "--dry-run", PATH=f"{programs}:{project.environ['PATH']}")
    assert decided.out.startswith("target cu132 (linux-x86_64, torch 2.15.0+cu132)")
