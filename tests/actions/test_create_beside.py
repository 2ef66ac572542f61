"""A build keeps nobody waiting: what is in use can be changed beside it, and the same is built once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.actions.test_create_stopped import QuickInstaller, checked
from tests.support.workshop import NOW, recorded, using

from torchenv.actions.create import CreateOrder, CreateOutcome, create
from torchenv.actions.ports import Ports
from torchenv.actions.switch import Outside, rollback, use
from torchenv.catalogue import resources
from torchenv.errors import WorkspaceError
from torchenv.index.http import Network
from torchenv.index.pages import fetcher
from torchenv.plan import Question, Wish, resolve
from torchenv.profile.model import Profile
from torchenv.workspace.store import Store


class Installer(QuickInstaller):
    """Makes environments that can be switched to: they have a Python."""

    def create(self, environment: Path, python: Path) -> None:
        super().create(environment, python)
        (environment / "bin").mkdir()
        (environment / "bin" / "python").symlink_to(sys.executable)


class SlowInstaller(Installer):
    """Begins to install, tells so, and goes on when it is let."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.times = 0

    def install(self, environment: Path, lock: Path) -> None:
        self.times += 1
        self.begun.set()
        assert self.go_on.wait(60)
        super().install(environment, lock)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    environment = tmp_path / ".venv"
    Installer().create(environment, Path(sys.executable))
    Installer().install(environment, environment)
    (version,) = environment.rglob("version.py")
    version.write_text("__version__ = '2.14.1+cpu'\n", "utf-8")
    return environment


def made(
    root: Path, old: Path, installer: QuickInstaller, say: Callable[[str], None] = lambda _: None
) -> CreateOutcome:
    host = using(recorded("cpu-only-linux"), old, "2.14.1+cpu")
    catalogue = resources.catalogue()
    plan = resolve(Question(host=host, wish=Wish(version="2.15"), catalogue=catalogue))
    ports = Ports(
        store=Store(root, say=say),
        installer=installer,
        run=checked,
        fetch=fetcher(Network()),
        say=say,
        now=lambda: NOW,
        system="linux",
    )
    order = CreateOrder(plan=plan, host=host, profile=Profile(name="default"), catalogue=catalogue)
    return create(order, ports)


def beside(root: Path, old: Path, installer: SlowInstaller) -> tuple[threading.Thread, list[CreateOutcome]]:
    """Start a create in a thread, and wait until it installs."""
    outcomes: list[CreateOutcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(made(root, old, installer)))
    thread.start()
    assert installer.begun.wait(60)
    return thread, outcomes


def test_use_and_rollback_go_on_at_once_while_an_environment_is_built(tmp_path: Path, old: Path) -> None:
    root = tmp_path / "w"
    first = made(root, old, Installer()).environment
    outside = Outside(running=lambda _: (), now=lambda: NOW)
    use(str(first.number), Store(root), outside)
    (version,) = Path(first.path).rglob("version.py")
    version.write_text("__version__ = '2.15.0+cpu0'\n", "utf-8")
    installer = SlowInstaller()
    thread, outcomes = beside(root, old, installer)
    # The installer waits for this thread, so none of these can have waited for it.
    assert rollback(None, Store(root), outside).now.path == str(old)
    assert use(str(first.number), Store(root), outside).now == replace(
        first, proofs=Store(root).read().number(first.number).proofs
    )
    manifest = Store(root).read()
    (building,) = manifest.list_unfinished()
    with Store(root).hold("torchenv prune"):
        assert Store(root).read().list_unfinished() == (building,)
    installer.go_on.set()
    thread.join()
    (outcome,) = outcomes
    after = Store(root).read()
    assert (outcome.new, outcome.environment.number) == (True, building.number)
    assert after.current == first.number
    assert [switch.to for switch in after.switches][-2:] == [1, first.number]


def test_a_command_that_clears_leaves_what_another_run_builds(tmp_path: Path, old: Path) -> None:
    root, installer = tmp_path / "w", SlowInstaller()
    thread, outcomes = beside(root, old, installer)
    store = Store(root)
    with store.hold("torchenv remove 7"):
        assert len(store.clear_unfinished().list_unfinished()) == 1
    installer.go_on.set()
    thread.join()
    assert Path(outcomes[0].environment.path).is_dir()
    assert not list((root / "building").iterdir())


def test_two_creates_of_the_same_plan_build_once(tmp_path: Path, old: Path) -> None:
    root, installer, said = tmp_path / "w", SlowInstaller(), list[str]()
    thread, outcomes = beside(root, old, installer)
    waiting = threading.Event()
    second: list[CreateOutcome] = []

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("waiting for"):
            waiting.set()

    other = threading.Thread(target=lambda: second.append(made(root, old, installer, say)))
    other.start()
    assert waiting.wait(60)
    installer.go_on.set()
    thread.join()
    other.join()
    assert installer.times == 1
    assert (outcomes[0].new, second[0].new) == (True, False)
    assert second[0].environment == outcomes[0].environment
    assert said[-1].startswith("waiting for torchenv create 2.15 (process ")
    assert said[-1].endswith(", which builds the same environment")


def test_the_second_builds_where_the_first_one_fails(tmp_path: Path, old: Path) -> None:
    class Failing(SlowInstaller):
        def install(self, environment: Path, lock: Path) -> None:
            super().install(environment, lock)
            raise WorkspaceError("no space left")

    root, failing, waiting = tmp_path / "w", Failing(), threading.Event()
    errors: list[Exception] = []

    def fail() -> None:
        try:
            made(root, old, failing)
        except WorkspaceError as error:
            errors.append(error)

    first = threading.Thread(target=fail)
    first.start()
    assert failing.begun.wait(60)
    second: list[CreateOutcome] = []
    other = threading.Thread(
        target=lambda: second.append(made(root, old, Installer(), lambda _: waiting.set()))
    )
    other.start()
    assert waiting.wait(60)
    failing.go_on.set()
    first.join()
    other.join()
    assert [str(error) for error in errors] == ["no space left"]
    assert second[0].new
    manifest = Store(root).read()
    assert manifest.list_unfinished() == ()
    assert [path.name for path in (root / "envs").iterdir()] == [Path(second[0].environment.path).name]


def test_a_writer_waits_a_minute_at_most_and_names_the_holder(tmp_path: Path) -> None:
    times = iter(range(0, 100_000, 20))
    holder = Store(tmp_path)
    other = Store(tmp_path, clock=lambda: float(next(times)))
    with holder.hold("torchenv lock"), pytest.raises(WorkspaceError) as caught, other.hold("torchenv use 2"):
        pass
    assert caught.value.message.startswith(f"`{tmp_path}` has been held for 60 s by torchenv lock (process ")
    assert caught.value.exit_code == 5
