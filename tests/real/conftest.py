"""Real environments, gigabytes each, made once for all real runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchenv.installers import interpreter_in
from torchenv.installers.pip import find_carried_pip

ORDINARY = ("numpy", "requests", "tqdm", "pyyaml", "rich")


@pytest.fixture(scope="session")
def old_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project's .venv as another tool makes it: `python -m venv`, then pip with torch 2.14.1."""
    environment = tmp_path_factory.mktemp("real") / "project" / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    # Some Pythons come without ensurepip, so the pip is the one that virtualenv carries.
    pip = [str(interpreter_in(environment)), str(find_carried_pip() / "pip"), "--disable-pip-version-check"]
    packages = ["torch==2.14.1", *ORDINARY]
    subprocess.run([*pip, "install", "--quiet", "--root-user-action=ignore", *packages], check=True)
    yield environment
    # Five gigabytes, and pytest keeps the folders of its last runs.
    shutil.rmtree(environment.parent)
