"""torch and torchrun come from a cluster's module, the other packages from an environment of the user's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.support.terminal import Terminal
from tests.support.workspace import MINOR

TRAIN = """\
import sys
import datasets
print("prefix:", sys.prefix)
print("datasets:", datasets.__file__)
"""
# What torch.distributed.run does with a script, in one process.
RUN = """\
import runpy
import sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A prefix with a Python, torch and torchrun, which lacks the user's packages."""
    prefix = tmp_path / "module"
    library = prefix / "lib" / f"python{MINOR}"
    packages = library / "site-packages"
    for folder in ("torch/distributed", "torch-2.15.0.dist-info"):
        (packages / folder).mkdir(parents=True)
    (packages / "torch" / "__init__.py").write_text("__version__ = '2.15.0'\n", "utf-8")
    (packages / "torch" / "version.py").write_text("__version__ = '2.15.0'\n", "utf-8")
    (packages / "torch" / "distributed" / "__init__.py").write_text("", "utf-8")
    (packages / "torch" / "distributed" / "run.py").write_text(RUN, "utf-8")
    metadata = "Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0\n"
    (packages / "torch-2.15.0.dist-info" / "METADATA").write_text(metadata, "utf-8")
    for entry in Path(os.__file__).parent.iterdir():
        if entry.name != "site-packages":
            (library / entry.name).symlink_to(entry)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
    script = "#!/bin/sh\necho 'the Python of the module has no datasets' >&2\nexit 1\n"
    (prefix / "bin" / "torchrun").write_text(script, "utf-8")
    (prefix / "bin" / "torchrun").chmod(0o755)
    return prefix


def test_torchrun_runs_in_the_environment_and_what_runs_is_said(tmp_path: Path, module: Path) -> None:
    terminal = Terminal.within(tmp_path)
    directory = tmp_path / "own"
    packages = directory / "lib" / f"python{MINOR}" / "site-packages"
    packages.mkdir(parents=True)
    (directory / "bin").mkdir()
    (directory / "bin" / "python").symlink_to(module / "bin" / "python3")
    version = ".".join(map(str, sys.version_info[:3]))
    settings = f"home = {module / 'bin'}\ninclude-system-site-packages = true\nversion = {version}\n"
    (directory / "pyvenv.cfg").write_text(settings, "utf-8")
    (packages / "datasets.py").write_text("", "utf-8")
    (terminal.cwd / "train.py").write_text(TRAIN, "utf-8")
    terminal.environ["PATH"] = f"{module / 'bin'}:{terminal.environ['PATH']}"
    adopted = terminal.type("adopt", directory)
    assert adopted.code == 0, adopted.err

    ended = terminal.start("run", "-e", "1", "--", "torchrun", "train.py")
    assert ended.code == 0, ended.err
    assert ended.out == f"prefix: {directory}\ndatasets: {packages / 'datasets.py'}\n"
    assert "has no `torchrun`; running `python -m torch.distributed.run`" in ended.err
