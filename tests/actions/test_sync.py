"""A machine takes the target that it is, and builds exactly what was locked, from wherever the files are."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.pylock import Pylock
from tests.support.project import MINOR, Project, said_by
from tests.support.wheels import Wheel

from torchenv.environment.startup import STARTUP_FILE, STARTUP_TEXT
from torchenv.installers import interpreter_in
from torchenv.installers.pip import find_carried_pip
from torchenv.installers.uv import uv_program
from torchenv.lockfile.lock import Lock
from torchenv.lockfile.lockset import LockSet
from torchenv.render.dockerfile import dockerfile
from torchenv.system.process import Command, Programs, together
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.store import Store

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)


def manifest(team: Project, root: str = ".torchenv") -> Manifest:
    return Store(team.directory / root).read()


def files_in(environment: Path) -> Mapping[str, bytes]:
    """Every file of site-packages, but for what says who installed it."""
    (folder,) = environment.glob("lib/python3*/site-packages")
    marks = {"INSTALLER", "RECORD", "REQUESTED", "_virtualenv.py", "_virtualenv.pth"}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in marks and path.suffix != ".pyc"
    }


def test_a_machine_takes_the_target_that_it_is_and_builds_what_was_locked(team: Project) -> None:
    team.run("lock")
    # What came since is not in the lock.
    team.index.add("simple", Wheel(name="numpy", version="2.4.0"))
    done = team.run("sync")
    assert (done.code, done.out) == (0, "1"), done.said
    (made,) = manifest(team).environments
    assert (made.torch, made.backend, made.host) == ("2.15.0+cpu", "cpu", "linux-x86_64")
    assert manifest(team).current is None
    said = said_by(Path(made.path), "import torch, numpy; print(torch.__version__, numpy.__version__)")
    assert said == "2.15.0+cpu 2.3.0"
    assert Store(team.directory / ".torchenv").lock_path(1).read_bytes() == team.locks()["pylock.ci.toml"]


def test_an_environment_that_equals_its_lock_is_not_made_again(team: Project) -> None:
    team.run("lock")
    team.run("sync")
    team.index.forget()
    again = team.run("sync")
    assert (again.code, again.out) == (0, "1")
    assert again.said.startswith("environment 1 (2.15.0-cpu-")
    assert again.said.endswith(") is up to date with its lock file: nothing to do")
    assert team.index.requests == []

    used = team.run("sync", "--use", "--json")
    assert used.json["made"] is False
    assert manifest(team).current == 1
    assert team.run("sync", "--use").code == 0
    assert len(manifest(team).switches) == 1


def test_a_new_lock_makes_a_new_environment_beside_the_one_in_use(team: Project) -> None:
    team.run("lock")
    team.run("sync", "--use")
    before = manifest(team)
    team.index.add("simple", Wheel(name="numpy", version="2.4.0"))
    team.run("lock", "--upgrade", "numpy")
    done = team.run("sync", "--use", "--json")
    assert (done.code, done.json["made"], done.json["number"]) == (0, True, 2)
    after = manifest(team)
    assert (before.current, after.current) == (1, 2)
    assert after.switches[-1].why == "sync"
    assert said_by(Path(after.number(1).path), "import numpy; print(numpy.__version__)") == "2.3.0"


def test_a_profile_that_is_no_longer_what_was_locked_is_told_and_the_lock_is_built(team: Project) -> None:
    team.run("lock")
    assert "note: the profile" not in team.run("sync", "--dry-run").said
    team.change("torchenv.toml", 'requirements = ["lightning"]', 'requirements = ["lightning", "numpy"]')
    done = team.run("sync", "--dry-run")
    assert done.code == 0
    assert done.said.splitlines()[0] == (
        "note: the profile has changed since it was locked; the lock files are used as they are:"
        " see what changed with `torchenv lock --check`"
    )


def test_several_that_sync_at_once_build_one_environment(team: Project) -> None:
    team.run("lock")
    words = (sys.executable, "-m", "torchenv", "sync", "--quiet")
    runs = together(Programs(team.environ), [Command(words, cwd=team.directory)] * 4)
    assert [(run.code, run.out) for run in runs] == [(0, "1\n")] * 4
    assert [environment.number for environment in manifest(team).environments] == [1]


def test_what_would_be_built_is_said_and_nothing_is_made(team: Project) -> None:
    team.run("lock")
    done = team.run("sync", "--dry-run")
    assert done.out == "target ci (linux-x86_64, torch 2.15.0+cpu) would be built from pylock.ci.toml"
    document = team.run("sync", "--dry-run", "--json").json
    assert (document["schema"], document["target"], document["backend"]) == ("torchenv.plan/1", "ci", "cpu")
    assert not (team.directory / ".torchenv").exists()


THREE_BUILDS = f"""\
schema = 1
name = "moo"
[torch]
version = "2.15"
[index]
torch = "{{root}}/whl"
packages = "{{root}}/simple"
[[target]]
name = "cpu"
platform = "linux-x86_64"
python = "{MINOR}"
backend = "cpu"
[[target]]
name = "cu132"
platform = "linux-x86_64"
python = "{MINOR}"
backend = "cu132"
[[target]]
name = "pypi"
platform = "linux-x86_64"
python = "{MINOR}"
index = "packages"
"""

# What nvidia-smi prints of two cards; it answers whatever it is asked.
GPU = """\
#!/bin/sh
case "$*" in
  *--query-gpu*) echo "0, NVIDIA GeForce RTX 4090, 8.9, 24564, 580.65.06, Disabled" ;;
  *) echo "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: 13.0 |" ;;
esac
"""

HOSTS = Path(__file__).parents[1] / "data" / "hosts"


def host_file(directory: Path, name: str, **sections: object) -> str:
    """Write what a machine has, and return the name of the file."""
    python = {
        "version": platform.python_version(),
        "path": sys.executable,
        "implementation": "cpython",
        "free_threaded": False,
        "machine": "x86_64",
    }
    document = {
        "schema": "torchenv.host/1",
        "captured_at": "2026-11-30T08:00:00Z",
        "system": "linux",
        "machine": "x86_64",
        "libc": {"family": "glibc", "version": "2.39"},
        "pythons": [python],
        **sections,
    }
    (directory / name).write_text(json.dumps(document), "utf-8")
    return name


def nvidia(driver: str, name: str, capability: str) -> dict[str, object]:
    card = {"index": 0, "name": name, "compute_capability": capability}
    return {"status": "found", "driver": driver, "devices": [card]}


@pytest.fixture
def three(team: Project) -> Project:
    """A project whose targets take torch from three places."""
    team.write("torchenv.toml", THREE_BUILDS.replace("{root}", team.index.root))
    assert team.run("lock").code == 0
    return team


def test_a_host_without_devices_takes_the_cpu_target_before_the_package_index_build(three: Project) -> None:
    done = three.run("sync")
    assert done.code == 0, done.said
    assert [environment.torch for environment in manifest(three).environments] == ["2.15.0+cpu"]


def test_every_node_takes_its_own_target_whatever_the_others_built(three: Project) -> None:
    files = [
        host_file(three.directory, "cpu.json"),
        host_file(three.directory, "ada.json", nvidia=nvidia("580.65.06", "NVIDIA GeForce RTX 4090", "8.9")),
        host_file(three.directory, "old.json", nvidia=nvidia("470.10", "NVIDIA GeForce RTX 3090", "8.6")),
    ]
    done = three.run("sync", "--host", *files, "--json")
    assert done.code == 3
    rows = {row["host"]: row for row in done.json["hosts"]}
    assert {name: row["target"] for name, row in rows.items()} == {"cpu": "cpu", "ada": "cu132", "old": None}
    assert "needs driver 580 or newer, this host has 470.10" in rows["old"]["reason"]
    assert not re.search(r"--(backend|accept-cpu|capability)", json.dumps(rows))
    lines = three.run("sync", "--host", *files[:2]).out.splitlines()
    assert lines == [
        "cpu: cpu (linux-x86_64, torch 2.15.0+cpu)",
        "ada: cu132 (linux-x86_64, torch 2.15.0+cu132)",
    ]
    # In words, too, what opens a target is a line of its own.
    lines = three.run("sync", "--host", files[2]).out.splitlines()
    assert (lines[0].partition(":")[0], lines[1:]) == ("old", [f"  {rows['old']['opens']}"])
    assert not (three.directory / ".torchenv").exists()


def test_a_machine_that_gains_a_gpu_leaves_the_cpu_environment(three: Project) -> None:
    assert three.run("sync", "--use").out == "1"
    tools = three.directory.parent / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(GPU, "utf-8")
    (tools / "nvidia-smi").chmod(0o755)
    path = f"{tools}:{three.environ['PATH']}"
    decided = three.run("sync", "--dry-run", PATH=path)
    assert decided.out == (
        "target cu132 (linux-x86_64, torch 2.15.0+cu132) would be built from pylock.cu132.toml"
    ), decided.said
    # And back on a machine without: the environment that was built for it, nothing new.
    assert three.run("sync").out == "1"
    assert "is already built: environment 1 (" in three.run("sync", "--dry-run").out


@pytest.mark.parametrize("words", [(), ("--wheels", "nowhere")])
def test_a_dry_run_fails_where_the_run_would(team: Project, words: tuple[str, ...]) -> None:
    team.run("lock")
    if not words:
        team.change("pylock.ci.toml", "lightning-2.5.0", "lightning-2.5.1")
    dry, real = team.run("sync", "--dry-run", *words), team.run("sync", *words)
    assert (dry.code, dry.said) == (real.code, real.said)
    assert dry.code == 2


def test_a_target_of_another_platform_is_refused(team: Project) -> None:
    team.run("lock")
    done = team.run("sync", "windows")
    assert (done.code, done.said) == (
        3,
        (
            "error: target `windows` is for windows-x86_64, and this host is linux-x86_64\n"
            "hint: run `torchenv sync` without a name to take the target that suits this host"
        ),
    )
    assert not (team.directory / ".torchenv").exists()


def test_a_target_by_name_is_built_for_a_machine_that_has_its_device_later(team: Project) -> None:
    team.run("lock")
    done = team.run("sync", "ada")
    assert done.code == 0
    assert "  untested until run on a GPU" in done.said.splitlines()


def test_a_lock_that_was_changed_by_hand_is_not_built(team: Project) -> None:
    team.run("lock")
    team.change("pylock.ci.toml", "lightning-2.5.0", "lightning-2.5.1")
    done = team.run("sync")
    assert done.code == 2
    assert done.said.splitlines()[-2] == (
        "error: pylock.ci.toml was changed since it was locked (torchenv.lock.toml says so)"
    )
    assert manifest(team).environments == ()


@pytest.mark.parametrize("damage", ["changed", "gone", "a directory"])
def test_an_environment_whose_kept_lock_is_not_as_recorded_is_not_reused(team: Project, damage: str) -> None:
    team.run("lock")
    assert team.run("sync").code == 0
    kept = Store(team.directory / ".torchenv").lock_path(1)
    whole = kept.read_bytes()
    kept.unlink()
    if damage == "changed":
        kept.write_bytes(whole.replace(b"lightning-2.5.0", b"lightning-2.5.1"))
    elif damage == "a directory":
        kept.mkdir()
    done = team.run("sync", "--use")
    assert done.code == 5, done.said
    assert str(kept) in done.said
    assert manifest(team).current is None
    if damage == "changed":
        (hint,) = re.findall(r"hint: put it back with `(.*)`", done.said)
        assert shlex.split(hint) == ["cp", str(team.directory / "pylock.ci.toml"), str(kept)]
    if kept.is_dir():
        kept.rmdir()
    kept.write_bytes(whole)
    assert team.run("sync", "--use").code == 0


def test_a_pinned_wheel_that_vanished_is_named_and_nothing_is_left(team: Project) -> None:
    team.run("lock")
    lock = Lock.parse(team.read("pylock.ada.toml"), "ada")
    cudnn = next(package for package in lock.packages if package.name == "nvidia-cudnn-cu13")
    team.index.remove("simple", "nvidia-cudnn-cu13")
    team.index.add("simple", Wheel(name="nvidia-cudnn-cu13", version="9.24.0.43"))
    assert team.run("sync", "ada", "--dry-run").code == 4
    done = team.run("sync", "ada")
    assert done.code == 4
    assert done.said.splitlines()[-2] == (
        f"error: nvidia-cudnn-cu13==9.26.0.51 is no longer on {team.index.packages}: {cudnn.files[0].name}"
        f" was at {cudnn.files[0].url} (sha256 {cudnn.files[0].sha256}); it still has 9.24.0.43"
    )
    assert manifest(team).environments == ()
    assert list((team.directory / ".torchenv" / "envs").iterdir()) == []


def test_a_replaced_file_is_named_and_nothing_is_left(team: Project) -> None:
    team.run("lock")
    other = Wheel(name="filelock", version="3.20.0", files={"filelock/__init__.py": "# other\n"})
    team.index.add("simple", other)
    done = team.run("sync")
    assert done.code == 4
    assert f"filelock==3.20.0 was replaced on {team.index.packages}: " in done.said
    assert f"has sha256 {other.sha256}, and " in done.said
    assert manifest(team).environments == ()
    assert list((team.directory / ".torchenv" / "envs").iterdir()) == []


def test_a_file_whose_bytes_are_not_those_that_are_listed_is_not_installed(team: Project) -> None:
    team.environ["UV_CACHE_DIR"] += "-of-the-one-who-locks"
    team.run("lock")
    team.environ["UV_CACHE_DIR"] += "-of-another"
    team.index.damage("filelock-3.20.0-py3-none-any.whl")
    done = team.run("sync")
    assert done.code == 4
    assert "filelock==3.20.0 is not the file that was locked: expected sha256 " in done.said
    assert manifest(team).environments == ()


def test_a_yanked_wheel_is_said_and_still_builds_what_was_locked(team: Project) -> None:
    team.run("lock")
    (numpy,) = (wheel for wheel in team.index.wheels("simple") if wheel.file_name.startswith("numpy-2.3.0"))
    team.index.add("simple", replace(numpy, yanked=True))
    would = team.run("sync", "--dry-run")
    assert "note: numpy 2.3.0 was yanked: `torchenv lock` chooses another" in would.said.splitlines()
    assert team.run("sync").code == 0


def test_a_build_asks_for_the_files_of_the_lock_and_for_no_page(team: Project) -> None:
    team.run("lock", "ci")
    team.index.forget()
    assert team.run("sync").code == 0
    pages = [path for path in team.index.requests if not path.endswith(".whl")]
    assert pages == []
    assert len(team.index.wheels_fetched()) >= team.read("pylock.ci.toml").count("[[packages]]")


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_what_was_fetched_builds_without_any_network(team: Project, installer: str) -> None:
    team.run("lock")
    fetched = team.run("fetch", "ci", "wheels")
    assert fetched.code == 0, fetched.said
    assert sorted(path.name.split("-")[0] for path in (team.directory / "wheels").iterdir()) == [
        "filelock", "lightning", "numpy", "torch", "torchvision", "typing_extensions",
    ]  # fmt: skip
    team.index.forget()
    team.environ["UV_CACHE_DIR"] += "-cold"
    done = team.run("sync", "--offline", "--wheels", "wheels", "--installer", installer)
    assert done.code == 0, done.said
    assert team.index.requests == []
    (made,) = manifest(team).environments
    assert said_by(Path(made.path), "import torch; print(torch.__version__)") == "2.15.0+cpu"
    # The record holds the lock of the team, not the way that its files took here.
    assert made.lock is not None
    assert made.lock in team.read("torchenv.lock.toml")


def test_what_is_there_already_is_not_fetched_again_and_what_is_damaged_is(team: Project) -> None:
    team.run("lock")
    team.run("fetch", "ci", "wheels")
    team.index.forget()
    (team.directory / "wheels" / "filelock-3.20.0-py3-none-any.whl").write_bytes(b"half")
    assert team.run("fetch", "ci", "wheels").said.splitlines()[0] == "downloading 1 of 6 files, 0 MiB"
    assert team.index.wheels_fetched() == ["filelock-3.20.0-py3-none-any.whl"]


def test_a_file_that_was_replaced_is_not_fetched(team: Project) -> None:
    team.run("lock")
    team.index.damage("filelock-3.20.0-py3-none-any.whl")
    done = team.run("fetch", "ci", "wheels")
    assert done.code == 4
    assert "filelock-3.20.0-py3-none-any.whl is not the file that was locked: expected sha256 " in done.said
    assert not any("filelock" in path.name for path in (team.directory / "wheels").iterdir())


def test_a_directory_that_lacks_files_is_told_before_anything_is_built(team: Project) -> None:
    team.run("lock")
    team.run("fetch", "ci", "wheels")
    (team.directory / "wheels" / "numpy-2.3.0-py3-none-any.whl").unlink()
    done = team.run("sync", "--wheels", "wheels")
    assert (done.code, done.said.splitlines()[-2:]) == (
        2,
        [
            f"error: {team.directory}/wheels does not hold numpy-2.3.0-py3-none-any.whl",
            f"hint: bring them with `torchenv fetch ci {team.directory}/wheels` where there is a network",
        ],
    )
    assert not (team.directory / ".torchenv" / "envs").exists()


def test_a_directory_with_a_damaged_file_is_told_before_anything_is_built(team: Project) -> None:
    team.run("lock")
    team.run("fetch", "ci", "wheels")
    (team.directory / "wheels" / "numpy-2.3.0-py3-none-any.whl").write_bytes(b"half")
    done = team.run("sync", "--wheels", "wheels")
    wheels = f"{team.directory}/wheels"
    assert (done.code, done.said.splitlines()[-2]) == (
        2,
        f"error: in {wheels} these are not the files that were locked: numpy-2.3.0-py3-none-any.whl",
    )
    assert not (team.directory / ".torchenv" / "envs").exists()


def test_files_are_not_fetched_to_where_there_can_be_none(team: Project) -> None:
    team.run("lock")
    taken = team.directory / "wheels" / "numpy-2.3.0-py3-none-any.whl"
    taken.mkdir(parents=True)
    for directory, said in (
        ("torchenv.toml", "torchenv.toml: File exists"),
        ("wheels", f"{taken}: Is a directory"),
    ):
        done = team.run("fetch", "ci", directory)
        assert done.code == 2
        assert said in done.said


def test_a_mirror_of_this_machine_serves_the_files_and_the_lock_stays(team: Project) -> None:
    team.run("lock")
    for name in team.index.places():
        team.index.add(f"company/{name}", *team.index.wheels(name))
    team.index.forget()
    team.environ["UV_CACHE_DIR"] += "-cold"
    company = f"{team.index.root}/company"
    done = team.run("sync", TORCHENV_TORCH_INDEX=f"{company}/whl", TORCHENV_PACKAGE_INDEX=f"{company}/simple")
    assert done.code == 0, done.said
    assert team.index.requests
    assert all(path.startswith("/company/") for path in team.index.requests)
    (made,) = manifest(team).environments
    assert made.lock is not None
    assert made.lock in team.read("torchenv.lock.toml")


def test_both_installers_make_the_same_files_from_one_lock(team: Project) -> None:
    team.run("lock")
    for installer in ("uv", "pip"):
        done = team.run("sync", "rocm7-14", "--root", installer, "--installer", installer)
        assert done.code == 0, done.said
    by_uv, by_pip = (Path(manifest(team, root).environments[0].path) for root in ("uv", "pip"))
    assert files_in(by_uv) == files_in(by_pip)
    assert "torch/version.py" in files_in(by_uv)


def test_each_lock_installs_without_torchenv(team: Project, tmp_path: Path) -> None:
    team.run("lock")
    locked = LockSet.from_toml(team.read("torchenv.lock.toml"), "it")
    here = [target for target in locked.targets if target.platform == "linux-x86_64" and target.lock]
    assert [target.torch for target in here] == [
        "2.15.0+cu132", "2.14.1+cu126", "2.15.0+rocm7.14", "2.15.0+cpu",
    ]  # fmt: skip
    run, uv = Programs(team.environ), str(uv_program())
    for target in here:
        lock = str(team.directory / target.file)
        Pylock.from_dict(tomllib.loads(team.read(target.file))).validate()
        uv_pip, python = (uv, "pip"), "--python"
        installers: dict[str, Callable[[str], tuple[str, ...]]] = {
            "sync": lambda to: (*uv_pip, "sync", "--no-config", python, to, lock),  # noqa: B023
            "install": lambda to: (*uv_pip, "install", "--no-config", python, to, "-r", lock),  # noqa: B023
            "pip": lambda to: (to, "-I", str(CARRIED_PIP), *OF_PIP, "-r", lock),  # noqa: B023
        }
        held = []
        for name, install in installers.items():
            environment = tmp_path / f"{target.name} by {name}"
            made = (uv, "venv", "--no-config", "--python", sys.executable, str(environment))
            run(Command(made)).check("make it")
            asked = Command(install(str(interpreter_in(environment))), env={"PIP_CONFIG_FILE": os.devnull})
            run(asked).check(f"install {target.file} by {name}")
            held.append(files_in(environment))
        assert held[0] == held[1] == held[2]
        assert said_by(environment, "import torch; print(torch.__version__)") == target.torch


def test_no_target_for_this_platform_says_which_there_are(team: Project) -> None:
    text = team.read("torchenv.toml")
    start = text.index('[[target]]\nname = "mac"')
    team.write("torchenv.toml", text[: text.index("[[target]]")] + text[start:])
    team.run("lock")
    done = team.run("sync")
    assert (done.code, done.said.splitlines()[-2:]) == (
        3,
        [
            "error: no target for linux-x86_64; targets are mac (darwin-arm64), windows (windows-x86_64)",
            "hint: add a [[target]] for linux-x86_64 and run `torchenv lock`",
        ],
    )


def test_no_target_that_suits_this_machine_says_why_of_each(team: Project) -> None:
    text = team.read("torchenv.toml")
    start, end = text.index('[[target]]\nname = "ci"'), text.index('[[target]]\nname = "mac"')
    team.write("torchenv.toml", text[:start] + text[end:])
    team.run("lock")
    done = team.run("sync")
    assert done.code == 3
    assert done.said.splitlines()[-2] == (
        "error: no target suits this host: ada: is for a device, and this host has none;"
        " v100: is for a device, and this host has none; rocm7-14: is for a device, and this host has none"
    )


CARRIED_PIP = find_carried_pip() / "pip"
OF_PIP = ("install", "--no-compile", "--no-deps")
UV = Wheel(name="uv", version=version("uv"), tag="py3-none-manylinux_2_17_x86_64")


def test_a_dockerfile_builds_the_same_environment(team: Project, tmp_path: Path) -> None:
    team.index.add("simple", UV, replace(UV, tag="py3-none-win_amd64"))
    team.run("lock")
    base = f"python:{MINOR}-slim@sha256:{'1' * 64}"
    written = team.run("export", "--dockerfile", "ci", "--base", base, "-o", "Dockerfile")
    assert written.code == 0, written.said
    text = team.read("Dockerfile")
    steps = instructions(text)
    assert [name for name, _ in steps] == [
        "FROM", "RUN", "FROM", "RUN", "COPY", "RUN", "USER", "WORKDIR", "RUN", "ENV", "LABEL",
    ]  # fmt: skip
    assert [words for name, words in steps if name == "FROM"] == [f"{base} AS uv", base]
    assert 'torchenv.proven="false"' in steps[-1][1]
    assert "# Unproven until it has run on a device" in text
    # uv comes from the set index, as one of the files that fit; the login of an index is in no layer.
    assert f"'uv=={UV.version} --hash=sha256:{UV.sha256}'" in steps[1][1]
    assert f"--require-hashes --index-url {team.index.packages}" in steps[1][1]
    fetching = [words for name, words in steps if name == "RUN"][:3]
    assert all("--mount=type=secret,id=netrc,target=/root/.netrc" in words for words in fetching)
    # Torch's packages come before the lock: they stay while others change.
    assert "'torch==2.15.0+cpu --hash=sha256:" in steps[3][1]
    assert "lightning" not in steps[3][1]

    # What the image would run, at another place and with the Python and the uv of this machine.
    here = tmp_path / "image"
    here.mkdir()
    (here / "pylock.ci.toml").write_bytes(team.locks()["pylock.ci.toml"])
    run = Programs(team.environ)
    for words in [words for name, words in steps if name == "RUN"][1:]:
        line = re.sub(r"--mount=\S+ |&& useradd [^&]+", "", words).replace("/tmp/", f"{tmp_path}/")
        line = line.replace("/opt/torchenv", shlex.quote(str(here))).replace("python3 ", f"{sys.executable} ")
        line = line.replace("/opt/uv/bin/uv", shlex.quote(str(uv_program())))
        run(Command(("sh", "-c", line))).check(f"run {line}")
    assert said_by(here / "env", "import torch; print(torch.__version__)") == "2.15.0+cpu"
    team.run("sync")
    built = files_in(Path(manifest(team).environments[0].path))
    assert {**files_in(here / "env"), STARTUP_FILE: STARTUP_TEXT.encode()} == built


def test_hadolint_finds_nothing_in_a_dockerfile(team: Project, tmp_path: Path) -> None:
    assert team.run("lock", "ci", "ada").code == 0
    locked = LockSet.from_toml(team.read("torchenv.lock.toml"), "it")
    linter = Path(sys.executable).with_name("hadolint")
    free = replace(locked.target("ci"), python="3.14t")
    for target in (locked.target("ci"), locked.target("ada"), free):
        lock = Lock.parse(team.read(target.file), target.file)
        for more in (
            {},
            {"base": f"python:3.12-slim@sha256:{'1' * 64}", "package_index": team.index.packages},
        ):
            text = dockerfile(
                target, lock, family=frozenset({"torch"}), uv=lambda: "uv==1 --hash=sha256:1", **more
            )
            (tmp_path / "Dockerfile").write_text(text, "utf-8")
            done = Programs(team.environ)(Command((str(linter), str(tmp_path / "Dockerfile"))))
            assert (done.out, done.code) == ("", 0)


def test_a_dockerfile_is_not_written_to_where_there_is_no_directory(team: Project) -> None:
    team.index.add("simple", UV)
    team.run("lock")
    done = team.run("export", "--dockerfile", "ci", "-o", "images/Dockerfile")
    said = f"error: {team.directory}/images/Dockerfile cannot be written: No such file or directory"
    assert (done.code, done.said.splitlines()[-1]) == (2, said)


def test_an_image_for_another_system_is_refused(team: Project) -> None:
    team.run("lock")
    done = team.run("export", "--dockerfile", "windows")
    assert (done.code, done.said) == (
        2,
        "error: target windows is for windows-x86_64\nhint: build images for linux-x86_64 and linux-aarch64",
    )


def instructions(text: str) -> list[tuple[str, str]]:
    """Read a Dockerfile: each instruction in capitals, with its words; a line may go on in the next."""
    joined = re.sub(r"\\\n\s*", "", "".join(f"{x}\n" for x in text.splitlines() if not x.startswith("#")))
    found = [re.fullmatch(r"([A-Z]+) (.+)", line) for line in joined.splitlines() if line]
    assert all(found), joined
    return [(item[1], item[2]) for item in found if item]
