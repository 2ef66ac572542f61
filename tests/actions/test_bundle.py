"""A bundle builds its target on a machine without any route, and says what it could not take along."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.support.project import MINOR, PAIR, Project
from tests.support.repacked import repack_tools

from torchenv.actions import bundle
from torchenv.installers.tools import list_needed
from torchenv.lockfile.lockset import LockSet
from torchenv.render.packing import write_build_script

ROOT = Path(__file__).parents[2]

# Nothing is fetched from outside.
NO_PYTHONS = {"UV_PYTHON_INSTALL_MIRROR": "file:///nowhere"}

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)


@pytest.fixture
def pair(team: Project) -> Project:
    """A project of two targets, beside an index that has what torchenv needs too."""
    team.write("torchenv.toml", PAIR.replace("{root}", team.index.root))
    team.index.add("simple", *repack_tools())
    assert team.run("lock").code == 0
    return team


def cut_off(words: Sequence[str], cwd: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command in a network of its own, which leads nowhere."""
    return subprocess.run(
        ["unshare", "-rn", *words], cwd=cwd, env=environ, text=True, capture_output=True, check=False
    )


@pytest.fixture
def far(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A machine without a network: its directory, and variables that know nothing of this one."""
    if shutil.which("unshare") is None or cut_off(["true"], tmp_path, dict(os.environ)).returncode:
        pytest.skip("this system lets nobody make a network namespace")
    here = tmp_path / "far away"
    (here / "bin").mkdir(parents=True)
    # No interpreter can be fetched here, so the machine has one.
    (here / "bin" / f"python{MINOR}").symlink_to(sys.executable)
    return here, {"PATH": f"{here}/bin:/usr/bin:/bin", "HOME": str(here)}


def test_a_bundle_builds_its_target_without_any_route(
    pair: Project, far: tuple[Path, dict[str, str]]
) -> None:
    made = pair.run("bundle", "ci", "ci.tar", **NO_PYTHONS)
    assert made.code == 0, made.said
    assert f"the machine must have python{MINOR} on its PATH" in made.said
    assert made.out.endswith("tar -xf ci.tar && sh ci/build.sh")
    assert sorted(path.name for path in pair.directory.iterdir() if path.name.startswith((".ci", "ci"))) == [
        "ci.tar"
    ]

    here, environ = far
    probe = "import socket; socket.create_connection(('127.0.0.1', 9), 2)"
    silent = cut_off([sys.executable, "-c", probe], here, environ)
    assert "Network is unreachable" in silent.stderr
    subprocess.run(["tar", "-xf", pair.directory / "ci.tar"], cwd=here, check=True)
    built = cut_off(["sh", "ci/build.sh"], here, environ)
    assert built.returncode == 0, built.stderr
    assert built.stdout == "1\n"
    following = shlex.split(built.stderr.splitlines()[-1])
    assert following[:4] == ["next:", "cd", str(here / "ci"), "&&"]
    program = following[4]
    code = "import torch; print(torch.__version__)"
    ran = cut_off([program, "run", "--", "python", "-c", code], here / "ci", environ)
    assert (ran.stdout, ran.returncode) == ("2.15.0+cpu\n", 0), ran.stderr

    # A second run finds it built, and a checkout with the same lock is built as well.
    again = cut_off(["sh", "ci/build.sh"], here, environ)
    assert "nothing to do" in again.stderr
    shutil.copytree(pair.directory, here / "checkout", ignore=shutil.ignore_patterns("*.tar", ".torchenv"))
    other = cut_off(["sh", "ci/build.sh", "checkout"], here, environ)
    assert other.returncode == 0, other.stderr
    assert (here / "checkout" / ".torchenv" / "manifest.toml").is_file()

    # What was damaged on its way builds nothing.
    wheel = next((here / "ci" / "wheels").glob("torch-*.whl"))
    wheel.write_bytes(b"")
    damaged = cut_off(["sh", "ci/build.sh"], here, environ)
    assert (damaged.returncode, damaged.stderr.splitlines()[-1]) == (
        2,
        "error: the bundle is damaged: copy it again",
    )


def test_a_bundle_says_what_it_holds_and_holds_no_more(pair: Project) -> None:
    made = pair.run("bundle", "ci", "ci.tar", "--json", **NO_PYTHONS)
    assert made.code == 0, made.said
    schema = json.loads((ROOT / "docs" / "schemas" / "torchenv.bundle-1.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(made.json)
    with tarfile.open(pair.directory / "ci.tar") as archive:
        names = set(archive.getnames())
        told = archive.extractfile("ci/bundle.json")
        assert told is not None
        held = json.load(told)
    assert held.items() <= made.json.items()
    files = {f"ci/{file['path']}" for file in held["files"]}
    assert names == {*files, "ci/bundle.json", "ci/SHA256SUMS"}
    wheels = {name for name in names if name.startswith("ci/wheels/")}
    # One file for each package of the target, and no sources beside it.
    assert len(wheels) == pair.read("pylock.ci.toml").count("[[packages]]")
    tools = {name.partition("/tools/")[2].partition("-")[0].lower() for name in names if "/tools/" in name}
    needed = {line.partition("==")[0].replace("-", "_") for line in list_needed().versions}
    assert {"torchenv", "uv", "requests"} <= tools <= needed | {"torchenv"}
    assert {"ci/torchenv.toml", "ci/torchenv.lock.toml", "ci/pylock.ci.toml", "ci/build.sh"} <= names


def test_what_appears_under_the_name_of_a_bundle_meanwhile_stays(
    pair: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = pair.directory / "ci.tar"
    describe = bundle._describe

    def describe_late(file: Path, parts: Path) -> bundle.BundleFile:
        there.write_text("of another", "utf-8")
        return describe(file, parts)

    monkeypatch.setattr(bundle, "_describe", describe_late)
    made = pair.run("bundle", "ci", "ci.tar", **NO_PYTHONS)
    assert (made.code, there.read_text("utf-8")) == (2, "of another")
    assert f"error: `{there}` already exists" in made.said


def test_after_a_stop_only_the_rest_is_fetched_and_the_bytes_are_the_same(pair: Project) -> None:
    assert pair.run("bundle", "ci", "at-once.tar", **NO_PYTHONS).code == 0
    wheel = next(wheel for wheel in pair.index.wheels("simple") if wheel.project == "tomlkit")
    pair.index.damage(wheel.file_name)
    stopped = pair.run("bundle", "ci", "ci.tar", **NO_PYTHONS)
    assert stopped.code == 4
    assert "tomlkit" in stopped.said
    assert not (pair.directory / "ci.tar").exists()
    # The other downloads of a process that ends would end with it.
    while list((pair.directory / "ci.tar.parts").rglob("*.part")):
        time.sleep(0.05)
    pair.index.mend(wheel.file_name)
    pair.index.forget()
    assert pair.run("bundle", "ci", "ci.tar", **NO_PYTHONS).code == 0
    assert not [name for name in pair.index.wheels_fetched() if name.startswith("torch-")]
    at_once, in_two = ((pair.directory / name).read_bytes() for name in ("at-once.tar", "ci.tar"))
    assert at_once == in_two


def test_a_directory_of_the_user_with_the_name_of_the_parts_is_left_alone(pair: Project) -> None:
    mine = pair.directory / "ci.tar.parts"
    mine.mkdir()
    (mine / "build.sh").write_text("mine", "utf-8")
    refused = pair.run("bundle", "ci", "ci.tar", **NO_PYTHONS)
    assert refused.code == 2
    assert f"`{mine}` already exists and does not hold the parts of a bundle" in refused.said
    assert [path.name for path in mine.iterdir()] == ["build.sh"]
    assert (mine / "build.sh").read_text("utf-8") == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("windows", "w.tar"), "target windows is for windows-x86_64"),
        (("nope", "w.tar"), "target `nope` not found"),
        (("ci", "torchenv.toml"), "already exists"),
        (("ci", "none/ci.tar"), "there is no directory"),
    ],
)
def test_what_cannot_be_bundled_is_refused(pair: Project, words: tuple[str, ...], said: str) -> None:
    if words[0] == "windows":
        target = PAIR.partition("[[target]]")[2].replace("ci", "windows").partition("[[target]]")[0]
        text = pair.read("torchenv.toml") + f"\n[[target]]{target}".replace("linux", "windows").replace(
            '"cpu"', '"cu132"'
        )
        pair.write("torchenv.toml", text)
        assert pair.run("lock").code == 0
    refused = pair.run("bundle", *words)
    assert refused.code == 2
    assert said in refused.said
    assert not list(pair.directory.glob("*.parts"))


def test_the_script_is_sound_and_takes_the_interpreters_of_the_bundle(pair: Project, tmp_path: Path) -> None:
    target = LockSet.from_toml(pair.read("torchenv.lock.toml"), "it").target("ci")
    script = tmp_path / "build.sh"
    script.write_text(write_build_script(target, tool_python="3.12"), "utf-8")
    checker = Path(sys.executable).with_name("shellcheck")
    checked = subprocess.run([checker, script], text=True, capture_output=True, check=False)
    assert checked.stdout == ""
    assert f"for version in {MINOR} 3.12; do" in script.read_text("utf-8")
