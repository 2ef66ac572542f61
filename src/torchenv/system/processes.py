"""Which processes run from an environment: told by what they were started as and have loaded."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from torchenv.system.values import frozen

if TYPE_CHECKING:
    from torchenv.system.process import Runner


@frozen
class Process:
    """A process of this user, with the command that it was started by."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


# The beginnings of paths that lie in one of some directories.
Inside = tuple[str, ...]

# Gives the processes that run from an environment in one of these directories, this one aside.
Running = Callable[[Sequence[Path]], tuple[Process, ...]]


def running(system: str, run: Callable[[], Runner]) -> Running:
    """Make the `Running` of a system; `run` gives what starts programs, which Linux does without."""
    if system == "linux":
        return in_proc
    return lambda directories: ask_system(run(), directories, system=system)


def name_parent(system: str, run: Callable[[], Runner]) -> str | None:
    """Return the program that started this one, as the system names it; None where it does not say."""
    parent = os.getppid()
    if system == "linux":
        try:
            return Path(f"/proc/{parent}/comm").read_text("utf-8", "replace").strip()
        except OSError:
            return None
    if system == "win32":
        return None
    from torchenv.system.process import Command

    done = run()(Command(("ps", "-o", "comm=", "-p", str(parent))))
    return done.out.strip() or None


def in_proc(directories: Sequence[Path], proc: Path = Path("/proc")) -> tuple[Process, ...]:
    """Find them in Linux's own list; other users' processes cannot be opened."""
    return _others(_in_proc(proc, tuple(f"{directory}/" for directory in directories)))


def list_writers(proc: Path = Path("/proc")) -> Mapping[str, Process] | None:
    """Return the files that are open for writing, each with who writes it; None where that cannot be seen.

    Other users' processes are closed to all but root, and those of other machines to everybody.
    """
    writers: dict[str, Process] = {}
    try:
        pids = [name for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return None
    for pid in pids:
        with suppress(OSError):
            for handle in os.listdir(f"{proc}/{pid}/fd"):  # noqa: PTH208
                link = f"{proc}/{pid}/fd/{handle}"
                # The link of an open file has the mode that it was opened with.
                with suppress(OSError):
                    if os.lstat(link).st_mode & stat.S_IWUSR and (path := os.readlink(link)).startswith("/"):  # noqa: PTH115
                        name = Path(f"{proc}/{pid}/comm").read_text("utf-8", "replace").strip()
                        writers[path] = Process(int(pid), name)
    return writers


def ask_system(run: Runner, directories: Sequence[Path], *, system: str) -> tuple[Process, ...]:
    """Find them by the programs with which macOS and Windows tell; what those do not tell stays unknown."""
    from torchenv.system.process import Command, together

    commands = (_CIM,) if system == "win32" else (_PS, _LSOF)
    answers = [done.out for done in together(run, [Command(command) for command in commands], timeout=10)]
    if system == "win32":
        return _others(
            _find_started_from(answers[0], tuple(f"{directory}\\".lower() for directory in directories))
        )
    inside = tuple(f"{directory}/" for directory in directories)
    return _others([*_with_file_in(answers[1], inside), *_with_command_in(answers[0], inside)])


_PS = ("ps", "-axwwo", "pid=,command=")
_LSOF = ("lsof", "-w", "-n", "-P", "-F", "pcn", "-d", "txt")
_CIM = (
    "powershell",
    "-NoProfile",
    "-Command",
    'gcim Win32_Process | % { "$($_.ProcessId)`t$($_.ExecutablePath)`t$($_.CommandLine)" }',
)


def _others(found: Iterable[Process]) -> tuple[Process, ...]:
    by_pid = {found_item.pid: found_item for found_item in found if found_item.pid != os.getpid()}
    return tuple(by_pid[pid] for pid in sorted(by_pid))


def _in_proc(proc: Path, inside: Inside) -> Iterator[Process]:
    for pid in os.listdir(proc):  # noqa: PTH208 - hundreds of processes in a few milliseconds
        if pid.isdecimal():
            # What ends under the eye, or belongs to another user, cannot be told.
            with suppress(OSError):
                process = proc / pid
                program = str((process / "exe").readlink())
                words = _texts(process / "cmdline")
                if program.startswith(inside) or (
                    "python" in Path(program).name and _leads_inside(process, words[0], inside)
                ):
                    yield Process(int(pid), " ".join(words).strip() or program)


def _leads_inside(process: Path, name: str, inside: Inside) -> bool:
    """Describe a Python, whose program is that of its base, whether it was started as the one inside."""
    if "/" in name:
        started_as = os.path.normpath((process / "cwd").readlink() / name)
        if started_as.startswith(inside):
            return True
    else:
        variables = dict(text.partition("=")[::2] for text in _texts(process / "environ"))
        for directory in variables.get("PATH", "").split(os.pathsep):
            if os.access(f"{directory}/{name}", os.X_OK):
                if f"{directory}/".startswith(inside):
                    return True
                break
    # 7f2c4c000000-7f2c4c021000 r-xp 00000000 fe:00 1234   /home/ada/envs/2-…/site-packages/torch/_C.so
    loaded = (process / "maps").read_bytes()
    return any(os.fsencode(f" {item}") in loaded for item in inside)


def _texts(path: Path) -> list[str]:
    # python\0train.py\0
    return os.fsdecode(path.read_bytes()).split("\0")


def _with_command_in(text: str, inside: Inside) -> Iterator[Process]:
    #   4711 /Users/ada/project/.torchenv/envs/2-2.15.0-cpu-py3.12/bin/python train.py
    for line in text.splitlines():
        pid, _, command = line.strip().partition(" ")
        if pid.isdecimal() and command.startswith(inside):
            yield Process(int(pid), command)


def _with_file_in(text: str, inside: Inside) -> Iterator[Process]:
    # p4711
    # cpython3.12
    # ftxt
    # n/Users/ada/project/.torchenv/envs/2-2.15.0-cpu-py3.12/lib/python3.12/site-packages/torch/_C.so
    pid, command = 0, ""
    for line in text.splitlines():
        match line[:1], line[1:]:
            case "p", number if number.isdecimal():
                pid = int(number)
            case "c", name:
                command = name
            case "n", path if path.startswith(inside):
                yield Process(pid, command)
            case _:
                pass


def _find_started_from(text: str, inside: Inside) -> Iterator[Process]:
    # A venv's Python stays there as the launcher of its base:
    # 4711<TAB>C:\Users\ada\envs\2-2.15.0-cpu-py3.12\Scripts\python.exe<TAB>python train.py
    for line in text.splitlines():
        pid, _, rest = line.partition("\t")
        path, _, command = rest.partition("\t")
        if pid.isdecimal() and path.lower().startswith(inside):
            yield Process(int(pid), command.strip() or path)
