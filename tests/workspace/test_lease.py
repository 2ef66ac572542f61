"""A workspace that machines share is held by one run at a time, where locks reach a machine only, too."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from torchenv.environment.base_python import BasePython
from torchenv.errors import WorkspaceError
from torchenv.system.disk import Disk
from torchenv.workspace.lease import Lease
from torchenv.workspace.store import Store

NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
PROCESSES = 8
EACH = 2


class SharedDisk(Disk):
    """Storage as one of several machines sees it: no hard links, and locks that others do not notice."""

    def __init__(self, machine: str, *, locks: bool) -> None:
        self._machine = machine
        self._locks = locks

    def try_to_lock(self, handle: int) -> bool | None:
        return True if self._locks else None

    def node(self) -> str:
        return self._machine

    def host(self) -> str:
        return self._machine


def work(root: Path, machine: str, *, locks: bool) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no hard links here")

    os.link = refuse
    store = Store(root, disk=SharedDisk(machine, locks=locks))
    for turn in range(EACH):
        with store.hold(f"torchenv create {turn}"):
            manifest = store.clear_unfinished()
            name, python = f"env-{machine}-{turn}", BasePython("3.12.7", "/usr/bin/python3")
            manifest, new = manifest.begin(name, within=store.environments, python=python, at=NOW)
            store.write(manifest)
            Path(new.path).mkdir(parents=True)
            store.write_lock(new.number, f"{machine} {turn}\n")
            manifest, _ = manifest.commit(new, lock=f"{machine} {turn}")
            store.write(manifest)


@pytest.mark.parametrize("locks", [True, False], ids=["weak locks", "no locks"])
def test_many_machines_that_create_at_once_corrupt_nothing(tmp_path: Path, *, locks: bool) -> None:
    fork = multiprocessing.get_context("spawn")
    runs = [
        fork.Process(target=work, args=(tmp_path, f"node{n}"), kwargs={"locks": locks})
        for n in range(PROCESSES)
    ]
    for item in runs:
        item.start()
    for run in runs:
        run.join()
    assert [run.exitcode for run in runs] == [0] * PROCESSES
    manifest = Store(tmp_path).read()
    assert [made.number for made in manifest.environments] == list(range(1, PROCESSES * EACH + 1))
    assert len({made.name for made in manifest.environments}) == PROCESSES * EACH
    for made in manifest.environments:
        assert made.live
        assert Store(tmp_path).lock_path(made.number).read_text("utf-8") == f"{made.lock}\n"
        assert Path(made.path).is_dir()
    assert not list(tmp_path.glob("lease*"))


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def lease(root: Path, node: str, clock: Callable[[], float] = time.monotonic, *, beat: float = 3600) -> Lease:
    return Lease(root / "lease", f"torchenv create on {node}", node=node, beat=beat, silence=60, clock=clock)


def test_a_holder_that_is_silent_for_long_is_given_up(tmp_path: Path) -> None:
    clock = Clock()
    gone, other = lease(tmp_path, "node1"), lease(tmp_path, "node2", clock)
    assert gone.try_take(alone=True)
    assert not other.try_take(alone=True)
    clock.now = 59.0
    assert not other.try_take(alone=True)
    clock.now = 60.0
    assert other.try_take(alone=True)
    assert other.is_held
    assert not gone.is_held


def test_a_sign_of_life_keeps_the_lease_for_however_long_it_takes(tmp_path: Path) -> None:
    clock = Clock()
    alive, other = lease(tmp_path, "node1", beat=0.01), lease(tmp_path, "node2", clock)
    assert alive.try_take(alone=True)
    with alive.keep_alive():
        for _ in range(3):
            before = (tmp_path / "lease").read_text("utf-8")
            assert not other.try_take(alone=True)
            while (tmp_path / "lease").read_text("utf-8") in {before, ""}:
                time.sleep(0.01)
            clock.now += 59.0
        assert not other.try_take(alone=True)
    assert other.try_take(alone=True)


def test_what_a_killed_run_left_on_this_machine_holds_nobody_up(tmp_path: Path) -> None:
    assert lease(tmp_path, "node1").try_take(alone=True)
    # Who has the machine's own lock knows that nobody else here holds the lease.
    assert lease(tmp_path, "node1").try_take(alone=True)


def test_where_there_are_no_locks_only_silence_tells(tmp_path: Path) -> None:
    assert lease(tmp_path, "node1").try_take(alone=False)
    assert not lease(tmp_path, "node1").try_take(alone=False)


def test_a_run_that_was_given_up_writes_nothing_more(tmp_path: Path) -> None:
    store = Store(tmp_path, disk=SharedDisk("node1", locks=True))
    with store.hold("torchenv create"):
        store.write(store.read())
        clock = Clock()
        other = lease(tmp_path, "node2", clock)
        assert not other.try_take(alone=True)
        clock.now = 60.0
        assert other.try_take(alone=True)
        with pytest.raises(WorkspaceError) as caught:
            store.write(store.read())
    assert str(caught.value).startswith("lost the workspace to torchenv create on node2 (process ")
    # What it leaves is the other's.
    assert other.is_held


def test_a_killed_run_is_followed_at_once_by_the_next(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with Store(tmp_path).hold("torchenv create"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert (tmp_path / "lease").exists()
    said: list[str] = []
    with Store(tmp_path, say=said.append).hold("torchenv use 1"):
        pass
    assert said == []
    assert not (tmp_path / "lease").exists()


def test_what_a_killed_run_had_not_given_its_name_is_cleared_by_the_next(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        lease(tmp_path, "node1").try_take(alone=False)
        os._exit(0)
    os.waitpid(child, 0)
    (left,) = tmp_path.glob("lease.*.new")
    (tmp_path / "lease.0123456789abcdef.new").touch()
    theirs = tmp_path / "lease.fedcba9876543210.new"
    theirs.write_text(left.read_text().replace("node1", "node2"))
    assert lease(tmp_path, "node1").try_take(alone=False)
    # Who is on another machine, or has not written who it is, may just be about to give it its name.
    assert sorted(tmp_path.glob("lease.*.new")) == [tmp_path / "lease.0123456789abcdef.new", theirs]
    for path in tmp_path.glob("lease.*.new"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    lease(tmp_path, "node1").try_take(alone=False)
    assert not list(tmp_path.glob("lease.*.new"))


def test_a_lease_of_an_earlier_boot_of_this_machine_is_taken_over_at_once(tmp_path: Path) -> None:
    def booted(node: str) -> Lease:
        return Lease(tmp_path / "lease", "torchenv create", node=node, host="ada's machine")

    assert booted("boot 1").try_take(alone=True)
    assert booted("boot 2").try_take(alone=False)


def test_where_there_are_no_locks_a_process_that_is_gone_holds_nobody_up(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        lease(tmp_path, "node1").try_take(alone=False)
        os._exit(0)
    os.waitpid(child, 0)
    assert lease(tmp_path, "node1").try_take(alone=False)


def test_an_empty_lease_that_a_full_disk_left_is_taken_over_at_once(tmp_path: Path) -> None:
    (tmp_path / "lease").touch()
    waiting = lease(tmp_path, "node1", Clock())
    # Where a file has no second name, another machine may just be writing it.
    assert not waiting.try_take(alone=True)
    os.utime(tmp_path / "lease", (1_000_000_000, 1_000_000_000))
    assert waiting.try_take(alone=True)


@pytest.mark.skipif(os.name == "nt", reason="Windows has neither")
@pytest.mark.parametrize("kind", ["directory", "link to another file", "link to itself", "pipe"])
def test_what_lies_in_the_place_of_a_lease_is_neither_waited_for_nor_read(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "lease", tmp_path / "other"
    other.write_text("a\nb\na secret\n", "utf-8")
    match kind:
        case "directory":
            path.mkdir()
        case "link to another file":
            path.symlink_to(other)
        case "link to itself":
            path.symlink_to(path.name)
        case _:
            os.mkfifo(path)
    with pytest.raises(WorkspaceError) as caught:
        Lease(path, "torchenv use 1", node="here").try_take(alone=True)
    assert str(caught.value) == f"`{path}` is not a file of torchenv's"
    assert other.read_text("utf-8") == "a\nb\na secret\n"


def test_a_purpose_that_is_no_text_is_no_defect(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    assert Lease(path, "torchenv adopt na\udcffme", node="here").try_take(alone=True)
    assert b"na\xffme" in path.read_bytes()
