"""The one place that starts programs, each in a clean environment and within its time."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol, TypeVar

from torchenv.errors import ToolFailed
from torchenv.system.orphans import SharedHandles
from torchenv.system.values import frozen
from torchenv.system.words import drop_colours

Result = TypeVar("Result")


@frozen
class Command:
    """A program with its arguments.

    `env` is added to the scrubbed environment that it runs in, `defaults` where it does not say otherwise,
    and `without` is left out of it. `secrets` are variables too, which are never shown.
    """

    argv: tuple[str, ...]
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    stdin: str = ""

    def __str__(self) -> str:
        """Write it as a line that can be pasted into a shell."""
        words = ["env", *(word for name in self.without for word in ("-u", name))] if self.without else []
        words += [f"{name}={shlex.quote(value)}" for name, value in {**self.defaults, **self.env}.items()]
        words += [shlex.join(self.argv)]
        if self.cwd is not None:
            words[:0] = ["cd", shlex.quote(str(self.cwd)), "&&"]
        if self.stdin:
            words[:0] = ["printf", "%s", shlex.quote(self.stdin), "|"]
        return " ".join(words)


class End(Enum):
    """How a command came to its end."""

    EXITED = "exited"
    OUT_OF_TIME = "out of time"
    NOT_FOUND = "not found"
    NOT_STARTED = "not started"


@frozen
class Completed:
    """What a command left behind: its exit code, negative for a signal, and what it printed.

    Where it never ran, or was out of time, `code` is 127, 126 or 124 as a shell gives it.
    """

    command: Command
    code: int
    out: str
    err: str
    end: End = End.EXITED

    def check(self, purpose: str) -> str:
        """Return what it printed, or raise `ToolFailed`: "could not <purpose>: …"."""
        if self.end is End.EXITED and self.code == 0:
            return self.out
        raise ToolFailed(
            f"could not {purpose}: {self.reason()}",
            hint=f"run `{self.command}` to see all of it",
        )

    def reason(self) -> str:
        """Describe in one line why it did not work."""
        program = Path(self.command.argv[0]).name
        match self.end:
            case End.NOT_FOUND:
                return f"program `{self.command.argv[0]}` not found"
            case End.NOT_STARTED:
                return f"{program} cannot be started: {self.err}"
            case End.OUT_OF_TIME:
                return f"{program} did not answer in time"
            case End.EXITED:
                said = drop_colours(self.err.strip() or self.out.strip()).splitlines()
                return said[-1].strip() if said else f"{program} {self.ending()}"

    def ending(self) -> str:
        """Describe how the process ended: "ended with code 1", "was ended by SIGKILL"."""
        if self.code >= 0:
            return f"ended with code {self.code}"
        number = -self.code
        # Those for real time, from 34 on, have no names of their own.
        named = number in set(signal.Signals)
        return f"was ended by {signal.Signals(number).name if named else f'signal {number}'}"


class Runner(Protocol):
    """What runs a command: `Programs`, or in a test what does as the tool would."""

    def __call__(self, command: Command, *, timeout: float | None = None) -> Completed: ...


class Programs:
    """Runs commands in a scrubbed copy of `environ`, each in a process group of its own.

    When the time is over, or torchenv is interrupted, the whole group is killed. Each program holds the files
    of `shared` open.
    """

    def __init__(self, environ: Mapping[str, str], shared: SharedHandles | None = None) -> None:
        self.environ = scrub_environ(environ)
        self._shared = shared or SharedHandles()

    def __call__(self, command: Command, *, timeout: float | None = None) -> Completed:
        return self.run(command, timeout=timeout)

    def run(
        self, command: Command, *, timeout: float | None = None, hear: Callable[[str], None] | None = None
    ) -> Completed:
        """Run a command to its end; `hear` gets each line of stderr when it is printed, in another thread."""
        try:
            child = subprocess.Popen(
                command.argv,
                cwd=command.cwd,
                env={
                    **command.defaults,
                    **_drop(self.environ, command.without),
                    **command.env,
                    **command.secrets,
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                # A group of its own can be killed whole; it also keeps Ctrl-C from reaching the
                # child before torchenv has decided what it means.
                start_new_session=os.name != "nt",
                creationflags=_NEW_GROUP,
                pass_fds=self._shared.numbers(),
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            return Completed(command, 127, "", str(error), End.NOT_FOUND)
        except OSError as error:
            return Completed(command, 126, "", str(error), End.NOT_STARTED)
        listener = _Listener(child, hear) if hear is not None else None
        code, end = None, End.EXITED
        try:
            with _watch(child):
                try:
                    out, err = child.communicate(command.stdin, timeout=timeout)
                except subprocess.TimeoutExpired:
                    _kill(child)
                    out, err = _last_words(child)
                    code, end = 124, End.OUT_OF_TIME
        finally:
            heard = listener.end() if listener else None
        return Completed(command, child.returncode if code is None else code, out, heard or err or "", end)

    @contextlib.contextmanager
    def feed(self, command: Command, purpose: str) -> Iterator[IO[bytes]]:
        """Start a program and yield its standard input; raises `ToolFailed` where it does not end well."""
        with self._stream(command, purpose, feeds=True) as pipe:
            yield pipe

    @contextlib.contextmanager
    def drain(self, command: Command, purpose: str) -> Iterator[IO[bytes]]:
        """Start a program and yield its standard output; raises `ToolFailed` where it does not end well."""
        with self._stream(command, purpose, feeds=False) as pipe:
            yield pipe

    @contextlib.contextmanager
    def _stream(self, command: Command, purpose: str, *, feeds: bool) -> Iterator[IO[bytes]]:
        # A pipe for what it complains of would fill while nobody reads it.
        with tempfile.TemporaryFile() as complaints:
            try:
                child = subprocess.Popen(
                    command.argv,
                    env={**self.environ, **command.env},
                    stdin=subprocess.PIPE if feeds else subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL if feeds else subprocess.PIPE,
                    stderr=complaints,
                    start_new_session=os.name != "nt",
                    creationflags=_NEW_GROUP,
                )
            except OSError as error:
                raise ToolFailed(f"could not {purpose}: {command.argv[0]}: {error.strerror}") from None
            pipe = child.stdin or child.stdout
            assert pipe is not None
            broken = None
            try:
                with contextlib.closing(pipe):
                    yield pipe
            except BrokenPipeError as error:
                # The program has gone: why, it says itself.
                broken = error
            except BaseException:
                _kill(child)
                child.wait()
                raise
            code = child.wait()
            complaints.seek(0)
            said = complaints.read().decode("utf-8", "replace")
        if code != 0 or broken is not None:
            Completed(command, code or 1, "", said).check(purpose)


class _Listener:
    """Reads what a child prints to stderr line by line, in the place of what waits for its end."""

    def __init__(self, child: subprocess.Popen[str], hear: Callable[[str], None]) -> None:
        assert child.stderr is not None
        self._stream, child.stderr = child.stderr, None
        self._hear = hear
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._stream:
                self._lines.append(line)
                self._hear(line)

    def end(self) -> str:
        """Return all that was printed; a grandchild that holds the pipe is not waited for."""
        self._thread.join(_LINGERS)
        if not self._thread.is_alive():
            self._stream.close()
        return "".join(self._lines)


def _drop(environ: Mapping[str, str], without: Sequence[str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in without}


def together(
    run: Runner, commands: Sequence[Command], *, timeout: float | None = None
) -> tuple[Completed, ...]:
    """Run commands side by side, each with the same limit in seconds; answers in the same order."""
    return side_by_side([partial(run, command, timeout=timeout) for command in commands])


def side_by_side(tasks: Sequence[Callable[[], Result]]) -> tuple[Result, ...]:
    """Do tasks that start programs side by side; answers in the same order.

    Where one raises, or torchenv is interrupted, the programs of all are killed.
    """
    if not tasks:
        return ()
    # 16 ms, which only what starts several programs pays.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=len(tasks)) as pool:
        try:
            waiting = [pool.submit(task) for task in tasks]
            return tuple(item.result() for item in waiting)
        except BaseException:
            # The signal came to this thread; the others only end when their programs do.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in tuple(_children):
                _kill(child)
            raise


def become(command: Command, environ: Mapping[str, str]) -> NoReturn:
    """Let `command` take the place of torchenv, where it is, with exactly `environ` and its own additions.

    Raises `ToolFailed` if it cannot be started.
    """
    env = {**environ, **command.env}
    try:
        if os.name == "nt":
            # There is no exec on Windows: `os.execvpe` would return to the shell at once. The
            # child shares the console, so Ctrl-C is its own affair and not torchenv's.
            with _deaf_to_interrupts():
                sys.exit(subprocess.call(command.argv, env=env))
        with _signals_that_python_ignores():
            os.execvpe(command.argv[0], command.argv, env)  # noqa: S606
    except (OSError, ValueError) as error:
        # An empty word is the name of no program, and Python refuses it before the system does.
        reason = getattr(error, "strerror", None) or str(error)
        raise ToolFailed(f"could not start `{command.argv[0]}`: {reason}") from None


def attend(command: Command, environ: Mapping[str, str]) -> int:
    """Run `command` on this terminal with exactly `environ`, and return its exit code; negative: a signal.

    Signals that torchenv gets go on to it. Raises `ToolFailed` if it cannot be started.
    """
    try:
        child = subprocess.Popen(command.argv, env={**environ, **command.env}, cwd=command.cwd)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ToolFailed(f"could not start `{command.argv[0]}`: {reason}") from None
    before = {}
    for name in _PASSED_ON:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, lambda number, _: child.send_signal(number))
    try:
        # Ctrl-C comes to the whole group of the terminal by itself.
        with _deaf_to_interrupts():
            return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_by_signal(number: int) -> None:
    """End torchenv as what it ran has ended: a shell and a scheduler must see the same."""
    if os.name == "posix":
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


# What schedulers send to a training, and shells to a job.
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT")


# Whatever begins like this would send uv, pip, virtualenv or Python to another index, another
# version or the environment that the user happens to be in.
_LEADS_ASTRAY = (
    "CONDA_",
    "PIP_",
    "PYTHON",
    "UV_",
    "VIRTUALENV_",
    "VIRTUAL_ENV",
    "_CE_",
    "_CONDA_",
    "__PYVENV_LAUNCHER__",
)

# What says how to reach an index or where there is room, and not what to choose. The caches stay:
# they hold nothing that a hash does not guard, and people point them at the disk that has space.
_SAYS_ONLY_HOW = frozenset(
    {
        "PIP_CACHE_DIR",
        "PIP_CERT",
        "PIP_CLIENT_CERT",
        "PIP_DEFAULT_TIMEOUT",
        "PIP_DISABLE_PIP_VERSION_CHECK",
        "PIP_KEYRING_PROVIDER",
        "PIP_NO_INPUT",
        "PIP_PROXY",
        "PIP_RETRIES",
        "PIP_ROOT_USER_ACTION",
        "PIP_TRUSTED_HOST",
        "UV_CACHE_DIR",
        "UV_CONCURRENT_BUILDS",
        "UV_CONCURRENT_DOWNLOADS",
        "UV_CONCURRENT_INSTALLS",
        "UV_HTTP_CONNECT_TIMEOUT",
        "UV_HTTP_RETRIES",
        "UV_HTTP_TIMEOUT",
        "UV_INSECURE_HOST",
        "UV_KEYRING_PROVIDER",
        "UV_NATIVE_TLS",
        "UV_PYTHON_CACHE_DIR",
        "UV_PYTHON_INSTALL_DIR",
        "UV_PYTHON_INSTALL_MIRROR",
        "UV_REQUEST_TIMEOUT",
        "UV_SYSTEM_CERTS",
    }
)

# Of these, what a person sets in order to choose; the others tell where one is, or Python how to behave.
_CHOOSES = ("PIP_", "PYTHONHOME", "PYTHONPATH", "UV_", "VIRTUALENV_")

# uv reads certificates from here alone, pip from each of these.
_CERTIFICATES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def scrub_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a child: what leads astray is gone, the way to the network stays.

    Certificates and a proxy that only pip was told of are said to uv in its own words.
    """
    kept = {name: value for name, value in environ.items() if not _leads_astray(name)}
    if not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & kept.keys():
        bundle = next((kept[name] for name in _CERTIFICATES if kept.get(name)), None)
        if bundle is not None:
            kept["SSL_CERT_FILE"] = bundle
    if "UV_HTTP_TIMEOUT" not in kept and "UV_REQUEST_TIMEOUT" in kept:
        # The older name of the same; only the newer one beats what torchenv would take.
        kept["UV_HTTP_TIMEOUT"] = kept["UV_REQUEST_TIMEOUT"]
    if "PIP_PROXY" in kept:
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            if name not in kept and name.lower() not in kept:
                kept[name] = kept["PIP_PROXY"]
    # What children print is read by torchenv, and colours would be part of the text.
    for name in ("CLICOLOR_FORCE", "FORCE_COLOR"):
        kept.pop(name, None)
    return {**kept, "NO_COLOR": "1", "PYTHONUTF8": "1"}


def list_ignored(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Name the variables that other tools would obey and torchenv does not, in order."""
    return tuple(
        sorted(
            name
            for name, value in environ.items()
            if value and _leads_astray(name) and name.startswith(_CHOOSES)
        )
    )


def _leads_astray(name: str) -> bool:
    return name.startswith(_LEADS_ASTRAY) and name not in _SAYS_ONLY_HOW


# Every child that was started and has not ended, whichever thread waits for it.
_children: set[subprocess.Popen[str]] = set()
_children_lock = threading.Lock()

# Seconds in which what a killed child had printed is read, if someone else holds its pipes.
_LINGERS = 2.0

_NEW_GROUP: int = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)


@contextlib.contextmanager
def _watch(child: subprocess.Popen[str]) -> Iterator[None]:
    with _children_lock:
        _children.add(child)
    try:
        yield
    except BaseException:
        _kill(child)
        _last_words(child)
        raise
    finally:
        with _children_lock:
            _children.discard(child)


def _kill(child: subprocess.Popen[Any]) -> None:
    if sys.platform == "win32":
        # Windows has no signal for a group; its own tool ends the tree.
        subprocess.run(
            ["taskkill", "/T", "/F", "/PID", str(child.pid)],  # noqa: S607
            capture_output=True,
            check=False,
        )
    else:
        # The leader may be gone while a grandchild of its group still holds the pipes.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def _last_words(child: subprocess.Popen[str]) -> tuple[str, str]:
    """Return what a killed child had printed; a grandchild outside its group may hold the pipes."""
    try:
        return child.communicate(timeout=_LINGERS)
    except subprocess.TimeoutExpired as error:
        for pipe in (child.stdout, child.stderr):
            # On Windows threads read them, which end with the grandchild.
            if pipe is not None and sys.platform != "win32":
                pipe.close()
        child.poll()
        return _decode(error.output), _decode(error.stderr)


def _decode(content: bytes | str | None) -> str:
    # What was read so far is bytes, whatever the pipe was opened as.
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else content or ""


@contextlib.contextmanager
def _signals_that_python_ignores() -> Iterator[None]:
    """Let them do what they do by default, which a program that takes this one's place inherits."""
    numbers = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ")]
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        yield
    finally:
        # Where there was no such program, this one goes on, and a reader that hangs up must not kill it.
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
