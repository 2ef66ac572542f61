"""A `create` that is stopped at any moment leaves what is in use in use, and the next run clears the rest."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.workshop import MINOR, NOW, Workshop, recorded, using

from torchenv.actions.create import CreateOrder, CreateOutcome, create
from torchenv.actions.ports import Ports
from torchenv.catalogue import resources
from torchenv.environment.fingerprint import fingerprint
from torchenv.environment.inspect import describe
from torchenv.errors import ToolFailed
from torchenv.index.http import Network
from torchenv.index.pages import fetcher
from torchenv.installers import LockRequest
from torchenv.lockfile.lock import Lock
from torchenv.plan import Question, Wish, resolve
from torchenv.profile.model import Profile
from torchenv.system.disk import Disk
from torchenv.system.process import Command, Completed, Runner
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store


class Stopping:
    """Starts programs until the one that is named, which is killed or fails before or after its work."""

    def __init__(self, run: Runner, program: str, *, kill: bool, late: bool) -> None:
        self.run, self.program, self.kill, self.late = run, program, kill, late

    def __call__(self, command: Command, *, timeout: float | None = None) -> Completed:
        if self.program not in " ".join(command.argv):
            return self.run(command, timeout=timeout)
        if self.late:
            self.run(command, timeout=timeout)
        if self.kill:
            raise KeyboardInterrupt
        return Completed(command, 1, "", "error: it broke")


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kill", [False, True], ids=["failed", "killed"])
@pytest.mark.parametrize("program", ["pip compile", "uv venv", "pip sync", "check.py"])
def test_a_program_that_stops_the_run_changes_nothing_that_is_in_use(
    workshop: Workshop, tmp_path: Path, program: str, *, kill: bool, late: bool
) -> None:
    old = workshop.old_environment(tmp_path / ".venv")
    before = fingerprint(describe(old))
    host = using(recorded("cpu-only-linux"), old, "2.14.1+cu126")
    with pytest.raises(KeyboardInterrupt if kill else ToolFailed):
        workshop.create(host, run=lambda run: Stopping(run, program, kill=kill, late=late))
    assert fingerprint(describe(old)) == before
    assert workshop.store.read().list_unfinished() == ()
    assert list(workshop.root.glob("envs/*")) == list(workshop.root.glob("locks/*")) == []

    made = workshop.create(host)
    manifest = workshop.store.read()
    assert manifest.active is not None
    assert manifest.active.path == str(old)
    assert manifest.environments[-1] == made.environment
    assert fingerprint(describe(old)) == before


# Killed outright: nothing more is written from that moment on.


class DyingDisk(Disk):
    """Does so many changes and then none, as for a run that was killed with no chance to clean up."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def make_directory(self, path: Path) -> None:
        self._change()
        super().make_directory(path)

    def write(self, path: Path, text: str) -> None:
        self._change()
        super().write(path, text)

    def rename(self, old: Path, new: Path) -> None:
        self._change()
        super().rename(old, new)

    def link(self, at: Path, target: Path) -> bool:
        self._change()
        return super().link(at, target)

    def delete(self, path: Path) -> bool:
        self._change()
        return super().delete(path)


class QuickInstaller:
    """Makes in no time what looks like an environment with a CPU's torch."""

    def lock(self, request: LockRequest) -> Lock:
        wheel = 'url = "https://mirror.example/torch.whl", hashes = { sha256 = "00" }'
        text = (
            'lock-version = "1.0"\ncreated-by = "torchenv"\n\n[[packages]]\nname = "torch"\n'
            f'version = "2.15.0+cpu"\nindex = "{request.torch_index}"\n'
            f'wheels = [{{ name = "torch-2.15.0+cpu-py3-none-any.whl", {wheel} }}]\n'
        )
        return Lock.parse(text, "the lock")

    cache = None

    def fetch_python(self, python: str) -> Path:
        raise AssertionError(python)

    def create(self, environment: Path, python: Path) -> None:
        environment.mkdir(parents=True)
        (environment / "pyvenv.cfg").write_text(f"home = {python.parent}\nversion = {MINOR}.1\n", "utf-8")

    def install(self, environment: Path, lock: Path) -> None:
        site = environment / "lib" / f"python{MINOR}" / "site-packages"
        (site / "torch").mkdir(parents=True)
        (site / "torch" / "version.py").write_text("__version__ = '2.15.0+cpu'\n", "utf-8")


def checked(command: Command, *, timeout: float | None = None) -> Completed:
    """Return as the check inside would."""
    torch = {"version": "2.15.0+cpu", "codes": []}
    report = {"packages": {"torch": "2.15.0"}, "torch": torch, "devices": [], "imports": {}}
    return Completed(command, 0, json.dumps(report), "")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    environment = tmp_path / ".venv"
    QuickInstaller().create(environment, Path(sys.executable))
    QuickInstaller().install(environment, environment)
    (version,) = environment.rglob("version.py")
    version.write_text("__version__ = '2.14.1+cpu'\n", "utf-8")
    return environment


def quickly(root: Path, old: Path, disk: Disk) -> CreateOutcome:
    host = using(recorded("cpu-only-linux"), old, "2.14.1+cpu")
    catalogue = resources.catalogue()
    plan = resolve(Question(host=host, wish=Wish(version="2.15"), catalogue=catalogue))
    ports = Ports(
        store=Store(root, disk=disk),
        installer=QuickInstaller(),
        run=checked,
        fetch=fetcher(Network()),
        say=lambda _: None,
        now=lambda: NOW,
        system="linux",
    )
    return create(
        CreateOrder(plan=plan, host=host, profile=Profile(name="default"), catalogue=catalogue), ports
    )


def changes_of_a_whole_run(root: Path, old: Path) -> int:
    disk = DyingDisk(1000)
    quickly(root, old, disk)
    return 1000 - disk.left


def test_a_run_killed_before_any_change_leaves_what_is_in_use_in_use(tmp_path: Path, old: Path) -> None:
    first = quickly(tmp_path / "all", old, Disk())
    assert first.environment.number == 2
    total = changes_of_a_whole_run(tmp_path / "counted", old)
    assert total > 20
    for changes in range(total):
        root = tmp_path / f"killed-{changes}"
        with pytest.raises(KeyboardInterrupt):
            quickly(root, old, DyingDisk(changes))
        in_use = Store(root).read().active
        assert in_use is None or in_use.path == str(old)

        made = quickly(root, old, Disk())
        manifest = Store(root).read()
        assert manifest.active is not None
        assert manifest.active.path == str(old)
        assert manifest.list_unfinished() == ()
        assert Path(made.environment.path).is_dir()
        there = {str(path) for path in (root / "envs").iterdir()}
        assert there == {
            environment.path for environment in manifest.environments if environment.path != str(old)
        }
        assert list((root / "trash").glob("*")) == []


def with_one_switched_to(root: Path, old: Path) -> Environment:
    """Build an environment and switch to it, in a workspace where a second one is made beside it."""
    first = quickly(root, old, Disk()).environment
    store = Store(root)
    with store.hold("a switch"):
        # The environment in use must not equal the plan, or nothing would be made.
        manifest = store.read().use(first.number, why="use", at=NOW)
        changed = replace(first, torch="2.14.1+cpu")
        others = (environment for environment in manifest.environments if environment.number != first.number)
        store.write(replace(manifest, environments=(*others, changed)))
    (version,) = Path(first.path).rglob("version.py")
    version.write_text("__version__ = '2.14.1+cpu'\n", "utf-8")
    return first


def test_a_run_killed_beside_one_that_was_switched_to_leaves_that_in_use(tmp_path: Path, old: Path) -> None:
    with_one_switched_to(tmp_path / "counted", old)
    total = changes_of_a_whole_run(tmp_path / "counted", old)
    assert total > 20
    for changes in range(total):
        root = tmp_path / f"killed-{changes}"
        first = with_one_switched_to(root, old)
        with pytest.raises(KeyboardInterrupt):
            quickly(root, old, DyingDisk(changes))
        assert Store(root).read().current == first.number
        quickly(root, old, Disk())
        assert Store(root).read().current == first.number
        assert Store(root).read().list_unfinished() == ()
