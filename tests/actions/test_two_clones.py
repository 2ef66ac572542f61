"""Two people, two branches and three kinds of host: at no step does anybody get another environment."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

import pytest
from tests.support.project import MINOR, PAIR, Project
from tests.support.wheels import Wheel

from torchenv.lockfile.lock import Lock
from torchenv.system.process import Command, Completed, Programs

# The wheels of the Python that runs the tests.
TAG = f"cp{MINOR.replace('.', '')}"

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)


# What nvidia-smi prints of a card.
GPU = """\
#!/bin/sh
case "$*" in
  *--query-gpu*) echo "0, NVIDIA GeForce RTX 4090, 8.9, 24564, 580.65.06, Disabled" ;;
  *) echo "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: 13.0 |" ;;
esac
"""


def git(clone: Path, *words: str) -> Completed:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@mail.example")
    return Programs(os.environ)(Command(("git", *who, *words), cwd=clone))


def commit(clone: Project, message: str) -> None:
    git(clone.directory, "add", "torchenv.toml", "torchenv.lock.toml", *clone.locks()).check("add the files")
    git(clone.directory, "commit", "-qam", message).check("commit")


def host_file(clone: Project, name: str, driver: str | None) -> str:
    card = {"index": 0, "name": "NVIDIA GeForce RTX 4090", "compute_capability": "8.9"}
    nvidia = {"nvidia": {"status": "found", "driver": driver, "devices": [card]}} if driver else {}
    python = {"version": platform.python_version(), "path": sys.executable, "implementation": "cpython"}
    document = {
        "schema": "torchenv.host/1",
        "captured_at": "2026-11-30T08:00:00Z",
        "system": "linux",
        "machine": "x86_64",
        "libc": {"family": "glibc", "version": "2.39"},
        "pythons": [{**python, "free_threaded": False, "machine": "x86_64"}],
        **nvidia,
    }
    (clone.directory.parent / name).write_text(json.dumps(document), "utf-8")
    return f"../{name}"


def require(clone: Project, name: str) -> None:
    clone.change("torchenv.toml", '    "lightning",\n', f'    "lightning",\n    "{name}",\n')
    locked = clone.run("lock")
    assert locked.code == 0, locked.said
    commit(clone, f"require {name}")


def test_two_clones_and_three_hosts_never_get_another_environment(  # noqa: PLR0915 - one walk in one test
    team: Project, tmp_path: Path
) -> None:
    index = team.index
    index.add("simple", Wheel(name="aaa", version="1.0"), Wheel(name="zzz", version="1.0"))
    team.write("torchenv.toml", PAIR.replace("{root}", index.root))
    git(team.directory, "init", "-q", "-b", "main").check("make a repository")
    assert team.run("lock").code == 0
    commit(team, "lock")
    git(tmp_path, "clone", "-q", str(team.directory), "other").check("clone it")
    git(tmp_path / "other", "config", "core.autocrlf", "true").check("do as git on Windows does")
    other = Project(tmp_path / "other", index, team.environ, profile=team.read("torchenv.toml"))

    # Each requires something on a branch of their own, while the index moves on.
    git(other.directory, "switch", "-qc", "branch").check("begin a branch")
    require(other, "zzz")
    index.add("simple", Wheel(name="numpy", version="2.9.0"), Wheel(name="filelock", version="3.99.0"))
    require(team, "aaa")

    # The merge conflicts; until it is settled nothing is built, and the locks settle themselves.
    git(team.directory, "fetch", "-q", str(other.directory), "branch").check("fetch the branch")
    git(team.directory, "merge", "-q", "FETCH_HEAD")
    for name in ("torchenv.toml", *(name for name in team.locks() if name.startswith("pylock"))):
        git(team.directory, "checkout", "--ours", "--", name)
    refused = team.run("sync", "ci")
    assert refused.code == 2
    assert "torchenv lock" in refused.said
    both = '    "aaa",\n    "zzz",\n'
    team.write("torchenv.toml", team.read("torchenv.toml").replace('    "aaa",\n', both))
    settled = team.run("lock")
    assert settled.code == 0, settled.said
    for target in ("ci", "ada"):
        versions = Lock.parse(team.read(f"pylock.{target}.toml"), target).versions
        assert versions.keys() >= {"aaa", "zzz"}
        assert (versions["numpy"], versions["filelock"]) == ("2.3.0", "3.20.0")
    git(team.directory, "add", "-u").check("settle the merge")
    git(team.directory, "commit", "-qm", "merge").check("commit the merge")

    # The other clone, with the line ends of Windows, has drifted in nothing.
    git(other.directory, "pull", "-q", "origin", "main").check("pull the merge")
    assert other.run("lock", "--check").out == "lock files are up to date"

    # Three hosts that share the workspace: each its own target, whoever built first.
    assert team.run("sync").code == 0
    hosts = [
        host_file(team, "cpu.json", None),
        host_file(team, "gpu.json", "580.65.06"),
        host_file(team, "old.json", "470.10"),
    ]
    rows = team.run("sync", "--host", *hosts, "--json").json["hosts"]
    assert [(row["host"], row["target"]) for row in rows] == [("cpu", "ci"), ("gpu", "ada"), ("old", None)]

    # A machine that gains a GPU, and one whose driver is too old, take no build of another kind.
    assert team.run("sync").out == "1"
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(GPU, "utf-8")
    (tools / "nvidia-smi").chmod(0o755)
    gained = team.run("sync", "--dry-run", PATH=f"{tools}:{team.environ['PATH']}")
    assert gained.out.startswith("target ada (linux-x86_64, torch 2.15.0+cu132) would be built"), gained.said
    stranger = team.run("sync", "--host", hosts[2])
    assert stranger.code == 3

    # The index replaces a wheel: both clones refuse it until they ask for it by name.
    before, honest = team.locks(), index.wheels("simple")
    index.add("simple", Wheel(name="filelock", version="3.20.0", files={"filelock/x.py": "# other\n"}))
    for clone in (team, other):
        clone.change("torchenv.toml", '    "lightning",\n', '    "lightning",\n    "numpy",\n')
        refused = clone.run("lock")
        assert refused.code == 4
        assert "filelock-3.20.0-py3-none-any.whl is not the file that was locked" in refused.said
        clone.change("torchenv.toml", '    "numpy",\n', "")
    assert team.locks() == before
    index.add("simple", *honest)

    # A plugin that names a torch of its own changes nothing; a source that cannot be obeyed is refused.
    wheel = next(
        wheel.file_name
        for wheel in index.wheels("whl/cu134")
        if wheel.project == "torch" and f"{TAG}-{TAG}-manylinux_2_28_x86_64" in wheel.file_name
    )
    address = f"{index.root}/whl/cu134/{wheel.replace('+', '%2B')}"
    index.add("simple", Wheel(name="sly", version="1.0", requires=(f"torch @ {address}",)))
    require(team, "sly")
    assert Lock.parse(team.read("pylock.ada.toml"), "ada").versions["torch"] == "2.15.0+cu132"
    before = team.locks()
    index.add("simple", Wheel(name="core-lib", version="9.9"))
    team.write(
        "pyproject.toml",
        '[project]\nname = "p"\ndependencies = ["core-lib"]\n'
        "[tool.uv.sources]\ncore-lib = { workspace = true }\n",
    )
    team.change("torchenv.toml", "[packages]\n", '[packages]\nfrom = ["pyproject.toml"]\n')
    confused = team.run("lock")
    assert confused.code == 2
    assert "no member of the workspace is called `core-lib`" in confused.said
    assert team.locks() == before
    assert not index.asked_for("simple", "core-lib")
