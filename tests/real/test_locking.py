"""The real package index locks torch 2.15 for four platforms from here, and this machine builds its own."""

from __future__ import annotations

import json
import platform
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.pylock import Pylock
from tests.real.test_create import computed_in, torchenv

pytestmark = pytest.mark.real

# PyTorch's own index need not be in reach here: the package index has one build a platform.
PROFILE = """\
schema = 1
name = "team"

[torch]
version = "2.15"
packages = ["torchvision"]

[packages]
requirements = ["safetensors"]
"""

TARGET = """
[[target]]
name = "{name}"
platform = "{platform}"
python = "{python}"
index = "packages"
"""

PLATFORMS = {
    "linux": "linux-x86_64",
    "arm": "linux-aarch64",
    "windows": "windows-x86_64",
    "mac": "darwin-arm64",
}
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    targets = (TARGET.format(name=n, platform=platform, python=MINOR) for n, platform in PLATFORMS.items())
    (tmp_path / "torchenv.toml").write_text(PROFILE + "".join(targets), "utf-8")
    yield tmp_path
    # Five gigabytes, and pytest keeps the folders of its last runs.
    shutil.rmtree(tmp_path)


def test_torch_2_15_is_locked_for_four_platforms_and_built_here(project: Path) -> None:
    torchenv(project, "lock")
    files = {}
    for name in PLATFORMS:
        text = (project / f"pylock.{name}.toml").read_text("utf-8")
        packages = {str(package.name): package for package in Pylock.from_dict(tomllib.loads(text)).packages}
        assert str(packages["torch"].version) == "2.15.0"
        assert str(packages["torchvision"].version) == "0.29.2"
        (wheel,) = packages["torch"].wheels or ()
        files[name] = wheel.filename.split("-", 4)[-1]
    assert files["linux"].endswith("manylinux_2_28_x86_64.whl")
    assert files["arm"].endswith("manylinux_2_28_aarch64.whl")
    assert files["windows"] == "win_amd64.whl"
    assert files["mac"] == "macosx_14_0_arm64.whl"

    before = {path.name: path.read_bytes() for path in project.glob("*.toml")}
    torchenv(project, "lock")
    assert {path.name: path.read_bytes() for path in project.glob("*.toml")} == before
    torchenv(project, "lock", "--check")

    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return
    made = json.loads(torchenv(project, "sync", "--use", "--json"))
    assert (made["made"], made["switched"], made["state"]) == (True, True, "ready")
    assert computed_in(Path(made["path"])) == f"{made['torch']} 12.0"
    again = json.loads(torchenv(project, "sync", "--use", "--json"))
    assert (again["made"], again["switched"], again["number"]) == (False, False, made["number"])
