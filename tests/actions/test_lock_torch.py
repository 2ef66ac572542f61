"""No dependency chooses torch: what a package says of it itself is ignored, and that is said."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.support.project import MINOR, PAIR, Project
from tests.support.wheels import Wheel

from torchenv.actions.carry import lock_with
from torchenv.errors import NothingSuits
from torchenv.installers import LockRequest
from torchenv.lockfile.lock import Lock
from torchenv.packages import CarriedPackages
from torchenv.system.process import Command, Programs

# The wheels of the Python that runs the tests.
TAG = f"cp{MINOR.replace('.', '')}"


@pytest.fixture
def pair(team: Project) -> Project:
    """A project with two targets, of which nothing is locked yet."""
    team.write("torchenv.toml", PAIR.replace("{root}", team.index.root))
    return team


def lock_of(pair: Project, target: str = "ada") -> Lock:
    return Lock.parse(pair.read(f"pylock.{target}.toml"), target)


def repository(directory: Path, pyproject: str) -> str:
    """Make a repository with one project in it, and return its address."""
    directory.mkdir()
    (directory / "pyproject.toml").write_text(pyproject, "utf-8")
    run = Programs(os.environ)
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "all of it")):
        git = ("git", "-c", "user.name=somebody", "-c", "user.email=somebody@mail.example")
        run(Command((*git, *words), cwd=directory)).check("make a repository")
    return f"git+{directory.as_uri()}"


def ask_for(pair: Project, *requirements: str) -> None:
    lines = "".join(f'    "{line}",\n' for line in requirements)
    pair.change("torchenv.toml", '    "lightning",\n', f'    "lightning",\n{lines}')


def other_torch(pair: Project) -> str:
    (wheel,) = (
        wheel
        for wheel in pair.index.wheels("whl/cu134")
        if wheel.project == "torch" and f"{TAG}-{TAG}-manylinux_2_28_x86_64" in wheel.file_name
    )
    return f"{pair.index.root}/whl/cu134/{wheel.file_name.replace('+', '%2B')}"


def test_a_source_inside_a_dependency_is_not_obeyed_and_named(pair: Project, tmp_path: Path) -> None:
    index = f'[[tool.uv.index]]\nname = "cu134"\nurl = "{pair.index.root}/whl/cu134"\nexplicit = true\n'
    project = '[project]\nname = "plugin"\nversion = "1"\ndependencies = ["torch", "numpy"]\n'
    address = repository(
        tmp_path / "plugin", f'{project}{index}[tool.uv.sources]\ntorch = {{ index = "cu134" }}\n'
    )
    pair.write("plugins.txt", f"# what we train with\nplugin @ {address}\n")
    pair.change("torchenv.toml", "[packages]", '[packages]\nfrom = ["plugins.txt"]')
    done = pair.run("lock")
    assert done.code == 0, done.said
    for target, torch in (("ada", "2.15.0+cu132"), ("ci", "2.15.0+cpu")):
        (package,) = (package for package in lock_of(pair, target).packages if package.name == "torch")
        assert package.version == torch
        assert package.index == f"{pair.index.root}/whl/{torch.partition('+')[2]}"
    assert (
        f"note: plugins.txt:2: plugin takes torch from {pair.index.root}/whl/cu134, which is ignored:"
        f" it comes from {pair.index.root}/whl/cu132"
    ) in done.said.splitlines()
    assert "cu134" not in pair.read("pylock.ada.toml").replace(address, "")
    before = pair.locks()
    assert pair.run("lock").code == 0
    assert pair.locks() == before


def test_an_address_inside_a_dependency_is_not_obeyed_and_named(pair: Project) -> None:
    pair.index.add("simple", Wheel(name="sly", version="1.0", requires=(f"torch @ {other_torch(pair)}",)))
    ask_for(pair, "sly")
    done = pair.run("lock")
    assert done.code == 0, done.said
    assert lock_of(pair).versions["torch"] == "2.15.0+cu132"
    assert lock_of(pair).versions["sly"] == "1.0"
    assert "sly==1.0 takes torch from " in done.said


def test_a_package_that_wants_another_torch_is_still_refused(pair: Project) -> None:
    pair.index.add("simple", Wheel(name="sly", version="1.0", requires=(f"torch @ {other_torch(pair)}",)))
    ask_for(pair, "sly", "xformers")
    done = pair.run("lock")
    assert done.code == 3
    assert re.search(r"xformers\S* wants torch==2\.14\.1, and the plan has torch==2\.15\.0", done.said)
    assert "pylock.ada.toml" not in pair.locks()


def test_on_the_package_index_no_address_is_obeyed_either(pair: Project) -> None:
    pair.index.add("simple", Wheel(name="sly", version="1.0", requires=(f"torch @ {other_torch(pair)}",)))
    ask_for(pair, "sly")
    pair.change("torchenv.toml", 'backend = "cu132"', 'index = "packages"')
    done = pair.run("lock")
    assert done.code == 0, done.said
    assert lock_of(pair).versions["torch"] == "2.15.0"
    assert "whl/cu134" not in pair.read("pylock.ada.toml")


class Elsewhere:
    """An installer that chooses another torch than the one that it is asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    def lock(self, request: LockRequest) -> Lock:
        del request
        return Lock.parse(self.text, "a lock")

    cache = None

    def fetch_python(self, python: str) -> Path:
        raise AssertionError(python)

    def create(self, environment: Path, python: Path) -> None:
        raise AssertionError(environment, python)

    def install(self, environment: Path, lock: Path) -> None:
        raise AssertionError(environment, lock)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('version = "2.15.0+cu134"\nindex = "https://m.example/whl/cu132"', "torch 2.15.0+cu134 from "),
        ('version = "2.15.0+cu132"', "torch 2.15.0+cu132 from "),
    ],
)
def test_a_lock_whose_torch_is_not_the_plans_is_refused_when_it_is_made(line: str, said: str) -> None:
    version = line.partition('"')[2].partition('"')[0].replace("+", "%2B")
    wheel = '[{ url = "https://m.example/tqdm-1-py3-none-any.whl", hashes = { sha256 = "aa" } }]'
    torch = wheel.replace("tqdm-1", f"torch-{version}")
    text = (
        f'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "torch"\n{line}\nwheels = {torch}\n'
        f'[[packages]]\nname = "tqdm"\nversion = "1"\nindex = "https://m.example/simple"\nwheels = {wheel}\n'
    )
    request = LockRequest(
        requirements=("torch==2.15.0+cu132",),
        torch_index="https://m.example/whl/cu132",
        python="3.12",
        platform="linux-x86_64",
    )
    with pytest.raises(NothingSuits) as caught:
        lock_with(CarriedPackages(), request, Elsewhere(text))
    assert said in str(caught.value)
