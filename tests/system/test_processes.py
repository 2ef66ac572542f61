"""Processes that run from an environment are found by what the system tells."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from torchenv.system.orphans import end_orphans, holders
from torchenv.system.process import Command, Completed
from torchenv.system.processes import Process, ask_system, in_proc, list_writers, running

ENVIRONMENT = Path("/home/ada/envs/2-2.15.0")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path / "proc"


def process(
    proc: Path, pid: int, *words: str, exe: str = "/usr/bin/python3.12", path: str = "", maps: str = ""
) -> None:
    """Describe a process as Linux does."""
    directory = proc / str(pid)
    directory.mkdir(parents=True)
    (directory / "exe").symlink_to(exe)
    (directory / "cwd").symlink_to("/home/ada/envs")
    (directory / "cmdline").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))
    (directory / "environ").write_bytes(b"HOME=/home/ada\0PATH=" + os.fsencode(path) + b"\0")
    (directory / "maps").write_text(maps)


def test_a_python_is_known_by_the_path_that_it_was_started_by(proc: Path) -> None:
    process(proc, 1, f"{ENVIRONMENT}/bin/python", "train.py")
    process(proc, 2, "2-2.15.0/bin/python", "-m", "torch.distributed.run")
    process(proc, 3, "/home/ada/envs/1-2.14.1/bin/python", "train.py")
    process(proc, 4, f"{ENVIRONMENT}-other/bin/python", "train.py")
    (proc / "self").mkdir()
    assert in_proc([ENVIRONMENT], proc) == (
        Process(1, f"{ENVIRONMENT}/bin/python train.py"),
        Process(2, "2-2.15.0/bin/python -m torch.distributed.run"),
    )


def test_a_python_that_was_started_by_its_name_is_known_by_its_own_path_variable(
    proc: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "envs" / "2"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").touch(mode=0o755)
    process(proc, 1, "python", "train.py", path=f"/no/such:{environment}/bin:/usr/bin")
    process(proc, 2, "python", "train.py", path="/usr/bin")
    assert in_proc([environment], proc) == (Process(1, "python train.py"),)


def test_a_python_is_known_by_what_it_has_loaded(proc: Path) -> None:
    loaded = f"7f2c4c000000-7f2c4c021000 r-xp 00000000 fe:00 1234   {ENVIRONMENT}/lib/torch/_C.so\n"
    process(proc, 1, "/usr/bin/python3", "notebook.py", maps=loaded)
    process(proc, 2, "/usr/bin/python3", "other.py", maps="7f2c4c000000 r-xp 0 fe:00 1 /usr/x.so")
    assert in_proc([ENVIRONMENT], proc) == (Process(1, "/usr/bin/python3 notebook.py"),)


def test_a_program_that_lies_inside_is_known_by_its_own_file(proc: Path) -> None:
    process(proc, 1, "ninja", exe=f"{ENVIRONMENT}/bin/ninja")
    process(proc, 2, "bash", exe="/usr/bin/bash")
    assert in_proc([ENVIRONMENT], proc) == (Process(1, "ninja"),)


def test_what_cannot_be_looked_into_and_torchenv_itself_are_passed_over(proc: Path) -> None:
    (proc / "1").mkdir(parents=True)
    process(proc, os.getpid(), f"{ENVIRONMENT}/bin/python", "-m", "torchenv")
    assert in_proc([ENVIRONMENT], proc) == ()


class Says:
    """Programs that print what was written down for them."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers

    def __call__(self, command: Command, *, timeout: float | None = None) -> Completed:
        assert timeout == 10
        return Completed(command, 0, self.answers[command.argv[0]], "")


def test_on_macos_both_commands_and_loaded_files_tell() -> None:
    says = Says(
        ps=f"  11 {ENVIRONMENT}/bin/python train.py\n  12 /sbin/launchd\n",
        lsof=(
            f"p11\ncpython3.12\nftxt\nn{ENVIRONMENT}/lib/torch/_C.so\n"
            f"p13\ncPython\nftxt\nn/usr/lib/dyld\nftxt\nn{ENVIRONMENT}/lib/torch/_C.so\n"
            "p14\ncPython\nftxt\nn/usr/lib/dyld\n"
        ),
    )
    assert ask_system(says, [ENVIRONMENT], system="darwin") == (
        Process(11, f"{ENVIRONMENT}/bin/python train.py"),
        Process(13, "Python"),
    )


def test_on_windows_the_launcher_in_the_environment_tells() -> None:
    inside = "C:\\Users\\ada\\envs\\2-2.15.0"
    says = Says(
        powershell=f"4\t\t\n11\t{inside.upper()}\\Scripts\\python.exe\tpython train.py\n12\tC:\\x.exe\tx\n"
    )
    assert ask_system(says, [Path(inside)], system="win32") == (Process(11, "python train.py"),)


def test_linux_starts_no_program_to_tell() -> None:
    assert running("linux", lambda: pytest.fail("nothing is to be started")) is in_proc


LOCKED = "pos:\t0\nflags:\t0100002\nlock:\t1: FLOCK  ADVISORY  WRITE {taker} fe:00:2277377 0 EOF\n"


def holding(proc: Path, pid: int, lock: Path, said: str) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "fdinfo").mkdir()
    (proc / str(pid) / "fd" / "3").symlink_to(lock)
    (proc / str(pid) / "fdinfo" / "3").write_text(said)


def test_only_what_holds_the_lock_of_a_run_that_is_gone_is_ended(proc: Path, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    child = os.fork()
    if child == 0:
        while True:
            os.read(os.pipe()[0], 1)
    holding(proc, child, lock, LOCKED.format(taker=999999))
    holding(proc, os.getpid(), lock, LOCKED.format(taker=os.getpid()))
    holding(proc, 999998, lock, "pos:\t0\n")
    for pid in (child, os.getpid()):
        # What was closed since it was listed cannot be read any more.
        (proc / str(pid) / "fd" / "0").write_text("")
    assert sorted(pid for pid, _ in holders(lock, proc)) == sorted([child, os.getpid(), 999998])
    end_orphans(lock, proc)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9


def test_a_waiting_run_and_the_run_that_it_waits_for_are_left_alone(proc: Path, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holding(proc, os.getpid(), lock, "pos:\t0\n")
    holding(proc, os.getppid(), lock, LOCKED.format(taker=os.getppid()))
    end_orphans(lock, proc)
    os.kill(os.getppid(), 0)


def test_who_has_a_file_open_for_writing_is_found(tmp_path: Path) -> None:
    fds = tmp_path / "4711" / "fd"
    fds.mkdir(parents=True)
    (tmp_path / "4711" / "comm").write_text("python\n")
    (tmp_path / "self").mkdir()
    for number, target in enumerate(["/runs/a/model.pt", "socket:[12]", "/runs/a/gone.pt (deleted)"]):
        (fds / str(number)).symlink_to(target)
    # The links of /proc have modes of their own, which no other file system lets a test set.
    assert list_writers(tmp_path) == {
        "/runs/a/model.pt": Process(4711, "python"),
        "/runs/a/gone.pt (deleted)": Process(4711, "python"),
    }
    assert list_writers(tmp_path / "none") is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which files are open")
def test_a_file_that_is_only_read_has_no_writer(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"")
    with path.open("rb"):
        assert str(path) not in (list_writers() or {})
    with path.open("r+b"):
        assert (list_writers() or {})[str(path)].pid == os.getpid()
