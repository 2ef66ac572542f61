"""Stopped by a signal at any time, `torchenv create` ends its programs, clears what it began and says 130."""

from __future__ import annotations

import io
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.support.checkpoints import save
from tests.support.index import Index, serving
from tests.support.terminal import Ended, Terminal
from tests.support.world import world

from torchenv import cli

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)


class SlowIndex(Index):
    """Keeps silent about one file until it is told to go on, and says when it was asked for it."""

    def __init__(self, wheels: Index) -> None:
        super().__init__()
        self._places = wheels._places
        self.slow = ""
        self.asked, self.go_on = threading.Event(), threading.Event()

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        if self.slow and path.endswith(self.slow):
            self.asked.set()
            self.go_on.wait(60)
        return super().answer(path, accept)


@pytest.fixture
def index() -> Iterator[SlowIndex]:
    with serving(SlowIndex(world())) as served:
        assert isinstance(served, SlowIndex)
        yield served
        served.go_on.set()


# The page that is read before anything else, one that uv reads to choose, and a wheel, which only the install
# fetches: its METADATA lies beside it.
MOMENTS = {
    "asking": "/whl/cpu/torch/",
    "choosing": "/simple/filelock/",
    "installing": "/simple/numpy-2.3.0-py3-none-any.whl",
}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_ends_it_within_moments_and_leaves_nothing(
    terminal: Terminal, index: SlowIndex, name: str, moment: str
) -> None:
    (terminal.cwd / "torchenv.toml").write_text('schema = 1\n[packages]\nrequirements = ["numpy"]\n', "utf-8")
    index.slow = MOMENTS[moment]
    ended = stopped(terminal, index, getattr(signal, name))
    assert (ended.code, ended.err.splitlines()[-3:-1]) == (
        130,
        ["cleared the unfinished environment and kept what was downloaded", "interrupted"],
    )
    assert ended.err.splitlines()[-1].startswith("hint: continue with `torchenv create 2.15 --backend cpu ")
    assert "Traceback" not in ended.err
    assert ended.out == ""
    assert terminal.built() == []
    assert list(terminal.workspace.glob("locks/*")) == []
    assert programs_with(str(terminal.workspace)) == []

    index.slow = ""
    assert terminal.create("--json").json["state"] == "ready"


def test_a_kill_without_a_chance_is_cleared_by_the_next_run(terminal: Terminal, index: SlowIndex) -> None:
    (terminal.cwd / "torchenv.toml").write_text('schema = 1\n[packages]\nrequirements = ["numpy"]\n', "utf-8")
    index.slow = "/simple/numpy-2.3.0-py3-none-any.whl"
    ended = stopped(terminal, index, signal.SIGKILL)
    assert ended.code == -signal.SIGKILL
    assert len(terminal.built()) == 1
    left = terminal.type("list", "--json").json["environments"]
    assert [name["state"] for name in left] == ["building"]

    index.slow = ""
    index.go_on.set()
    again = terminal.create("--json")
    assert (again.json["number"], again.json["state"]) == (2, "ready")
    assert (
        f"clearing environment {left[0]['number']} ({left[0]['name']}), which was left unfinished\n"
        in again.err
    )
    assert terminal.built() == [Path(again.json["path"]).name]


TEAM = """\
schema = 1
name = "team"
[torch]
version = "2.15"
[index]
torch = "{root}/whl"
packages = "{root}/simple"
[[target]]
name = "ci"
platform = "linux-x86_64"
python = "{minor}"
backend = "cpu"
"""

# What each command waits for when it is stopped.
WAITING = {
    ("plan", "2.15", "--backend", "cpu"): "/whl/cpu/torch/",
    ("lock", "--upgrade"): "/whl/cpu/torch/",
    ("fetch", "ci", "wheels"): ".whl",
    ("sync", "ci"): ".whl",
}


@pytest.mark.parametrize("words", WAITING, ids=lambda words: words[0])
def test_a_command_that_waits_for_an_index_is_stopped_within_moments(
    terminal: Terminal, index: SlowIndex, words: tuple[str, ...]
) -> None:
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    (terminal.cwd / "torchenv.toml").write_text(TEAM.format(root=index.root, minor=minor), "utf-8")
    assert terminal.start("lock").code == 0
    index.slow = WAITING[words]
    ended = stopped(terminal, index, signal.SIGTERM, words)
    # A plan goes on without an index that does not answer in two seconds, and may just have ended.
    assert ended.code == 130 or (words[0], ended.code) == ("plan", 0), ended.err
    assert "Traceback" not in ended.err
    assert programs_with(str(terminal.workspace)) == []


@pytest.mark.parametrize("words", [("keep",), ("keep", "--copy"), ("verify",)], ids=" ".join)
def test_reading_gigabytes_is_stopped_within_moments(terminal: Terminal, words: tuple[str, ...]) -> None:
    step = save(terminal.cwd / "runs" / "a" / "step-100", "dcp-2.14.1")
    large = step / "__9_0.distcp"
    with large.open("wb") as file:
        # No bytes on the disk, and seconds to read.
        file.truncate(2 << 30)
    if words == ("verify",):
        assert terminal.start("checkpoints", "keep", step).code == 0
    before = sorted(terminal.workspace.rglob("*"))

    def wait_for_reading(child: subprocess.Popen[str]) -> None:
        while child.poll() is None and large not in open_files(child.pid):
            pass

    ended = stop_when(terminal, ("checkpoints", *words, str(step)), wait_for_reading, signal.SIGTERM)
    assert (ended.code, ended.out) == (130, ""), ended.err
    assert "cleared unfinished copies; checkpoints are as they were\ninterrupted\n" in ended.err
    assert "Traceback" not in ended.err
    kept = {path.name for path in terminal.workspace.rglob("*")} - {path.name for path in before}
    assert kept <= {
        ".gitignore",
        "identity",
        "lock",
        "manifest.toml",
        "manifest.toml.last-good",
        "kept",
        "reserve",
    }
    assert large.stat().st_size == 2 << 30


def open_files(pid: int) -> set[Path]:
    """Return the files that a process has open; none where it has ended."""
    found = set()
    with suppress(OSError):
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(handle.readlink())
    return found


class Interrupting(subprocess.Popen[str]):
    """Interrupts at one start of a program: it runs already, and nobody watches over it yet."""

    started: ClassVar[list[Interrupting]]
    interrupts: ClassVar[int]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.started.append(self)
        if len(self.started) == self.interrupts:
            raise KeyboardInterrupt


BUILDING = {
    "create": ("create", "2.15", "--backend", "cpu", "--python", sys.executable, "--again"),
    "sync": ("sync", "ci", "--offline"),
    "restore": ("restore", "2"),
    "add": ("add", "numpy"),
    "drop": ("drop", "numpy"),
}


@pytest.mark.parametrize("command", BUILDING)
def test_an_interrupt_between_a_programs_start_and_the_watch_over_it_leaves_nothing(
    terminal: Terminal, index: SlowIndex, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    (terminal.cwd / "torchenv.toml").write_text(TEAM.format(root=index.root, minor=minor), "utf-8")
    assert terminal.start("lock").code == 0
    assert terminal.create().code == 0
    if command == "restore":
        assert terminal.create("--again").code == 0
        assert terminal.type("remove", "2").code == 0
    if command == "drop":
        assert terminal.type("add", "numpy").code == 0
    before = terminal.built()
    monkeypatch.setattr(subprocess, "Popen", Interrupting)
    for interrupts in range(1, 30):
        Interrupting.started, Interrupting.interrupts = [], interrupts
        ended = terminal.type(*BUILDING[command])
        running = programs_with(str(terminal.workspace))
        for child in Interrupting.started:
            child.wait(30)
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
        if ended.code != 130:
            break
        assert (terminal.built(), running) == (before, []), ended.err
    assert (ended.code, interrupts > 2) == (0, True), ended.err


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_before_a_command_has_begun_is_an_interrupt_too(name: str) -> None:
    code = f"""
import os, signal, time
from torchenv import cli
def main(*_):
    os.kill(os.getpid(), signal.{name})
    time.sleep(60)
cli.main = main
cli.entry()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_in_a_callback_that_lets_no_exception_out_is_an_interrupt_too(name: str) -> None:
    code = f"""
import os, signal, time, weakref
from torchenv import cli
class Thing: ...
def main(*_):
    thing = Thing()
    callback = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.{name}))
    del thing
    time.sleep(60)
cli.main = main
cli.entry()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_an_interrupt_while_a_class_is_made_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def make_class(*_: object) -> None:
        # Before Python 3.12 this is a RuntimeError that the interrupt caused.
        type("Made", (), {"field": Interrupted()})

    monkeypatch.setattr(cli, "_run", make_class)
    err = io.StringIO()
    assert cli.main(["status"], {}, "/", None, io.StringIO(), err) == 130
    assert err.getvalue() == "interrupted\n"


def stopped(
    terminal: Terminal,
    index: SlowIndex,
    signal_number: int,
    chosen: tuple[str, ...] = ("create", "2.15", "--backend", "cpu", "--python", sys.executable),
) -> Ended:
    """Start a command, wait until it asks for the slow file, and send it a signal."""

    def wait_for_index(_: subprocess.Popen[str]) -> None:
        assert index.asked.wait(60)

    return stop_when(terminal, chosen, wait_for_index, signal_number)


def stop_when(
    terminal: Terminal,
    words: tuple[str, ...],
    wait: Callable[[subprocess.Popen[str]], None],
    signal_number: int,
) -> Ended:
    """Start a command, wait for the moment, and send it a signal."""
    child = subprocess.Popen(
        terminal.argv(*words),
        cwd=terminal.cwd,
        env=terminal.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait(child)
        child.send_signal(signal_number)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
        child.wait()
    return Ended(child.returncode, out, err)


def programs_with(words: str) -> list[str]:
    """Name the programs that run with these words in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if words in line and path.parent.name != str(os.getpid()):
            found.append(line)
    return found
