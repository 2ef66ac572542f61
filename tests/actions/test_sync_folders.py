"""The folders of a project are installed where they lie, with their dependencies and without their pins."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from tests.support.folder import write_package
from tests.support.project import PAIR, Project, said_by

from torchenv.lockfile.lock import Lock
from torchenv.workspace.store import Store

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)


@pytest.fixture
def mono(team: Project) -> Project:
    """A project whose root needs a member of its workspace, which pins an old torch."""
    team.write("torchenv.toml", PAIR.replace("{root}", team.index.root))
    workspace = (
        '[tool.uv.workspace]\nmembers = ["packages/*"]\n[tool.uv.sources]\ncore-lib = { workspace = true }\n'
    )
    write_package(team.directory, "mine", ["core-lib", "torch"], more=workspace)
    write_package(team.directory / "packages" / "core", "core-lib", ["numpy", "torch==2.1"])
    team.change("torchenv.toml", "[packages]\n", '[packages]\neditable = ["."]\n')
    return team


def test_folders_are_installed_without_their_torch_pins_and_verify_knows_them(mono: Project) -> None:
    done = mono.run("lock")
    assert done.code == 0, done.said
    assert "note: packages/core/pyproject.toml: torch==2.1 is left to the plan" in done.said.splitlines()
    lock = Lock.parse(mono.read("pylock.ci.toml"), "ci")
    assert lock.versions.keys() >= {"numpy", "torch", "lightning"}
    assert not lock.versions.keys() & {"mine", "core-lib"}
    assert [(folder.name, folder.path, folder.editable) for folder in lock.local] == [
        ("core-lib", "packages/core", True),
        ("mine", ".", True),
    ]
    made = mono.run("sync", "--use")
    assert made.code == 0, made.said
    (environment,) = Store(mono.directory / ".torchenv").read().environments
    path = Path(environment.path)
    said = said_by(path, "import core_lib, mine, torch; print(core_lib.WHERE, torch.__version__)")
    assert said == f"{mono.directory}/packages/core/core_lib.py 2.15.0+cpu"
    assert not any("core-lib" in request for request in mono.index.requests)

    # The folder is edited as people do; the environment is as it was built.
    (mono.directory / "packages" / "core" / "core_lib.py").write_text("WHERE = 'edited'\n", "utf-8")
    assert mono.run("verify").code == 0
    assert said_by(path, "import core_lib; print(core_lib.WHERE)") == "edited"
    assert mono.run("sync").out == "1"


def test_a_folder_that_is_gone_is_named_before_it_is_missed(mono: Project) -> None:
    mono.run("lock")
    (mono.directory / "packages" / "core").rename(mono.directory / "packages" / "moved")
    done = mono.run("sync")
    assert done.code == 2
    assert f"error: core-lib: {mono.directory}/packages/core does not exist" in done.said.splitlines()
    assert Store(mono.directory / ".torchenv").read().environments == ()


@pytest.mark.parametrize("line", ["-e x @ /etc", "x @ -c", "x", "../x @ ."])
def test_a_lock_names_folders_as_torchenv_writes_them(line: str) -> None:
    text = f'lock-version = "1.0"\ncreated-by = "x"\npackages = []\n[tool.torchenv]\nlocal = ["{line}"]\n'
    with pytest.raises(Exception, match="names no folder of the project"):
        _ = Lock.parse(text, "a lock").local
