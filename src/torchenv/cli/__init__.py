"""The command line: settles what was said, calls one action, prints what it gives back."""

from __future__ import annotations

# Nothing but what Python has loaded anyway: a short command pays for every import, and what a PYTHONPATH
# shadows is not to be met before `entry` has put it last.
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence
    from typing import NoReturn, TextIO

    from torchenv.cli.output import Output
    from torchenv.cli.parser import CommandSpec, Parser
    from torchenv.cli.session import Session
    from torchenv.errors import TorchenvError

# Each command with the module that holds it, which is imported only when it runs, and its line of help.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("building", "Write torchenv.toml for this project"),
    "probe": ("building", "Show the hardware and software of this machine, with the sources"),
    "plan": ("building", "Show which PyTorch suits this machine, and why"),
    "create": ("building", "Build a new environment beside the others"),
    "add": ("environments", "Add packages to the active environment (torch stays)"),
    "drop": ("environments", "Drop packages from the active environment (torch stays)"),
    "adopt": ("environments", "Record an environment made elsewhere (it is only read)"),
    "forget": ("environments", "Forget an adopted environment (its files stay)"),
    "status": ("environments", "Show the active environment and anything wrong with it"),
    "list": ("environments", "List the environments of this workspace"),
    "show": ("environments", "Show one environment with its plan, lock file and proofs"),
    "diff": ("environments", "Show what differs between two environments"),
    "history": ("switching", "List every switch between environments, and why"),
    "use": ("switching", "Switch to an environment"),
    "rollback": ("switching", "Switch back to the previous environment (works offline)"),
    "run": ("switching", "Run a command in an environment"),
    "activate": ("shells", "Print the commands that activate an environment in a shell"),
    "hook": ("shells", "Print a shell function that makes `torchenv activate` act on the shell"),
    "completion": ("shells", "Print the completion script of a shell"),
    "kernel": ("shells", "Install or remove an environment as a Jupyter kernel"),
    "doctor": ("proofs", "Find why an environment does not work, and how to fix it"),
    "verify": ("proofs", "Check that an environment is as it was built"),
    "smoke": ("proofs", "Check that torch computes, trains and saves in an environment"),
    "evaluate": ("proofs", "Measure a model in two environments and compare the metrics"),
    "checkpoints": ("checkpoints", "Scan, inspect, protect and downgrade checkpoints"),
    "lock": ("locks", "Lock every target of this project, from any machine"),
    "sync": ("locked", "Build the locked environment that suits this machine"),
    "fetch": ("locked", "Download all wheels of a target into a directory"),
    "export": ("locked", "Write a Dockerfile that builds the environment of a target"),
    "bundle": ("packing", "Write one file that builds a target without a network"),
    "pack": ("packing", "Write an environment as one file for shared storage"),
    "remove": ("environments", "Delete environments (their lock files stay)"),
    "prune": ("environments", "Delete old and unused environments"),
    "restore": ("environments", "Rebuild a removed environment from its lock file"),
    "upgrade": ("upgrade", "Upgrade step by step: check, build, prove, protect, switch"),
    "commit": ("upgrade", "End the trial of an upgrade"),
    "audit": ("reports", "Find code that the new release breaks"),
    "trust": ("environments", "Accept a workspace that another user or a repository made"),
    "report": ("reports", "Write one page on the state of this workspace"),
    "catalogue": ("catalogue", "Show, check or update the catalogue of PyTorch's releases"),
}

# What an interrupt leaves of a command: what was kept and what was cleared.
_BUILDING = "cleared the unfinished environment and kept what was downloaded"
_KEPT = {
    "create": _BUILDING,
    "sync": _BUILDING,
    "restore": _BUILDING,
    "add": _BUILDING,
    "drop": _BUILDING,
    "upgrade": "kept the steps that are done",
    "fetch": "kept the completed downloads",
    "bundle": "kept the completed downloads; no file was written",
    "pack": "cleared the unfinished file",
    "lock": "kept the lock files as they were",
    "smoke": "kept the environment and its earlier proofs as they were",
    "evaluate": "kept the earlier measurements",
    "checkpoints": "cleared unfinished copies; checkpoints are as they were",
    "remove": "kept what was not removed yet",
    "prune": "kept what was not removed yet",
}

# Commands that neither change a workspace nor start what lies in it; `doctor` asks for trust itself, where it
# is the workspace's own environment that is to be started.
READING = frozenset(
    {
        *("init", "probe", "plan", "status", "list", "show", "diff", "history", "verify", "report", "trust"),
        *("hook", "completion", "lock", "fetch", "export", "bundle", "audit"),
        *("catalogue show", "catalogue check"),
        *("checkpoints show", "checkpoints diff", "checkpoints verify", "checkpoints gate"),
        *("doctor", "upgrade --check"),
    }
)

INTERRUPTED = 130
DEFECT = 70
WRONG_INPUT = 2
OUTPUT_FAILED = 4


def entry() -> NoReturn:
    """Run one command as a program of its own, and end it."""
    code = INTERRUPTED
    try:
        _hear_signals()
        code = _enter()
    except KeyboardInterrupt:
        # It came before a command had begun, or after its end.
        os.write(2, b"interrupted\n")
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    finally:
        # Taking every module apart takes 7 ms, a tenth of a `plan`; whatever must be cleaned up has been.
        os._exit(code)


def _hear_signals() -> None:
    """Let a polite kill be an interrupt from the first moment; what is ignored stays so."""
    import signal

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP", "SIGALRM"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)
    if hasattr(signal, "setitimer"):
        sys.unraisablehook = _interrupt_again


def _interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Interrupt once more where Python lost an interrupt: no exception leaves what it calls by itself.

    A callback that a weak reference has, as each lock of an import has one, is called at any moment.
    """
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    import signal

    # Not at once: it would come before this function has ended, and be lost again.
    signal.setitimer(signal.ITIMER_REAL, 0.001)


def _enter() -> int:
    import gc

    # Nearly all that a short command makes lives until its end.
    gc.set_threshold(10_000)
    _put_python_path_last()
    _open_closed_streams()
    if hasattr(sys.stdout, "reconfigure"):
        # A path may hold what the terminal's encoding does not.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        cwd = os.getcwd()  # noqa: PTH109 - `--version` does not pay for pathlib
    except OSError:
        cwd = None
    return main(sys.argv[1:], os.environ, cwd, sys.stdin, sys.stdout, sys.stderr)


def main(  # noqa: PLR0917 - all that the outside is to a command, in the order of a C main
    argv: Sequence[str],
    environ: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
    stdin: TextIO | None,
    stdout: TextIO | None,
    stderr: TextIO | None,
) -> int:
    """Run one command as if typed in `cwd`, and return its exit code; `cwd` is None where it is gone.

    A stream is None where it is closed.
    """
    from torchenv.cli.output import Output

    output = Output(stdout, stderr, environ)
    code = _run_guarded(argv, dict(environ), cwd, stdin, output)
    output.stop_progress()
    output.flush()
    if output.failure is not None:
        output.warn(f"error: the output cannot be written: {output.failure.strerror or output.failure}")
        return code or OUTPUT_FAILED
    return code


def make_parser(name: str) -> tuple[Parser, CommandSpec]:
    """Return the parser of a command and what it is made of."""
    from importlib import import_module

    from torchenv.cli.options import add_general
    from torchenv.cli.parser import Parser

    module, says = COMMANDS[name]
    spec: CommandSpec = import_module(f"torchenv.cli.{module}").COMMANDS[name]
    parser = Parser(prog=f"torchenv {name}", description=f"{says}.", allow_abbrev=False)
    add_general(parser)
    spec.declare(parser)
    return parser, spec


def _run_guarded(
    argv: Sequence[str],
    environ: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
    stdin: TextIO | None,
    output: Output,
) -> int:
    from torchenv.errors import TorchenvError

    try:
        return _run(list(argv), environ, cwd, stdin, output)
    except TorchenvError as error:
        output.explain(error)
        return error.exit_code
    except KeyboardInterrupt:
        return _end_interrupted(list(argv), output)
    except BrokenPipeError:
        # Who read the output has seen enough.
        return 0
    except Exception as error:
        if _comes_of_interrupt(error):
            return _end_interrupted(list(argv), output)
        from traceback import format_exc

        output.warn(format_exc().rstrip("\n"))
        output.warn("this is a defect in torchenv: please report it with the lines above")
        output.print_failure(DEFECT, f"defect in torchenv: {type(error).__name__}: {error}")
        return DEFECT


def _name_way_on(argv: list[str]) -> str:
    """Return the hint with the command that goes on, which is the same one."""
    import shlex

    return f"continue with `{shlex.join(['torchenv', *argv])}`"


def _end_interrupted(words: list[str], output: Output) -> int:
    """Print what was kept and what was cleared, and how to go on; return the exit code."""
    output.stop_progress()
    at = _find_command(words)
    is_check = "--check" in words
    kept = None if at is None or is_check else _KEPT.get(words[at])
    output.warn("\n".join([*([kept] if kept else []), "interrupted"]))
    hint = _name_way_on(words) if kept else None
    if hint is not None:
        output.warn(f"hint: {hint}")
    output.print_failure(INTERRUPTED, "interrupted", "; ".join(filter(None, (kept, hint))) or None)
    return INTERRUPTED


def _comes_of_interrupt(error: BaseException) -> bool:
    """Return whether an interrupt is its cause: one that comes while a class is made is a RuntimeError."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _run(
    words: list[str],
    environ: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
    stdin: TextIO | None,
    output: Output,
) -> int:
    if words in (["--version"], ["-V"], ["version"]):
        from torchenv import __version__

        output.print(f"torchenv {__version__}")
        return 0
    at = _find_command(words)
    name = None if at is None else words[at]
    output.is_json = name != "run" and _is_json_asked(words)
    if at is not None and name == "help":
        words = [*words[:at], *words[at + 1 :], "--help"]
        at = _find_command(words)
        name = None if at is None else words[at]
    if at is None or name not in COMMANDS:
        return _show_overview(words, name, output)
    del words[at]
    return _run_command(name, words, environ, cwd, output, stdin=stdin)


def _run_command(
    name: str,
    words: list[str],
    environ: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
    output: Output,
    *,
    stdin: TextIO | None,
) -> int:
    from pathlib import Path

    from torchenv.cli.interrupts import stoppable
    from torchenv.cli.parser import HelpAsked
    from torchenv.cli.session import Session
    from torchenv.cli.settings import read_settings
    from torchenv.errors import IndexFailed, InputError

    parser, spec = make_parser(name)
    try:
        arguments: Namespace = parser.parse(words)
    except HelpAsked as asked:
        output.print(asked.text)
        return 0
    if cwd is None:
        raise InputError("the current directory no longer exists", hint="change to one that does")
    output.is_quiet, output.is_verbose = arguments.quiet, arguments.verbose
    output.is_json = getattr(arguments, "json", False) or getattr(arguments, "format", "") == "json"
    here = Path(cwd)
    flags = spec.read(arguments, here)
    session = Session(read_settings(arguments, environ, here, sys.platform), output, stdin)
    output.program = session.settings.program
    if not _only_reads(name, arguments):
        session.refuse_suspicious()
        _clear_scratch(environ)
    with stoppable():
        try:
            return spec.run(flags, session)
        except IndexFailed as error:
            _name_what_was_ignored(error, session)
            raise


def _clear_scratch(environ: Mapping[str, str]) -> None:
    """Delete what killed runs left among the temporary files of a POSIX system."""
    if os.name == "posix":
        from pathlib import Path

        from torchenv.system.scratch import clear_scratch

        clear_scratch(Path(environ.get("TMPDIR") or "/tmp"))  # noqa: S108 - only what torchenv made there is cleared


def _only_reads(name: str, arguments: Namespace) -> bool:
    """Return whether a command with these flags leaves a workspace as it is and starts nothing from it."""
    action = getattr(arguments, "action", None) or getattr(arguments, "what", None)
    if getattr(arguments, "check", False) and f"{name} --check" in READING:
        return True
    return name in READING or f"{name} {action}" in READING or getattr(arguments, "dry_run", False)


def _name_what_was_ignored(error: TorchenvError, session: Session) -> None:
    """Describe which setting of another tool would have led to another index, or to files."""
    inherited = session.inherited
    remedies = (
        (inherited.indexes, "set TORCHENV_PACKAGE_INDEX to use that index"),
        (inherited.links, "list `NAME @ file:///PATH` under [packages] requirements to use a file there"),
    )
    said = [f"{remedy}: your {' and '.join(names)} is ignored here" for names, remedy in remedies if names]
    if said:
        # Each is a way of its own, and a line.
        error.hint = "\n".join([*([error.hint] if error.hint else []), *said])


def _find_command(words: list[str]) -> int | None:
    """Find the command, which may follow `--root DIR` and other options that all commands take."""
    return next(
        (
            at
            for at, word in enumerate(words)
            if not word.startswith("-") and (at == 0 or words[at - 1] != "--root")
        ),
        None,
    )


def _is_json_asked(words: list[str]) -> bool:
    """Whether a document is expected, for the failure of a command whose words cannot be read."""
    own = words[: words.index("--")] if "--" in words else words
    before = own.index("json") - 1 if "json" in own else -1
    return "--json" in own or "--format=json" in own or (before >= 0 and own[before] == "--format")


def _show_overview(words: list[str], name: str | None, output: Output) -> int:
    from torchenv.errors import InputError
    from torchenv.system.documents import nearest

    later = [word for word in words if word in COMMANDS]
    if words and words[0].startswith("-") and name != words[0] and later:
        # torchenv --profile x plan
        command = " ".join(["torchenv", later[0], *(word for word in words if word != later[0])])
        raise InputError(f"`{words[0]}` must come after the command", hint=f"write `{command}`")
    if name is not None:
        hint = nearest(name, COMMANDS) or "list the commands with `torchenv --help`"
        raise InputError(f"command `{name}` not found", hint=hint)
    unknown = [word for word in words if word not in {"-h", "--help"}]
    if unknown:
        hint = "list the commands with `torchenv --help`"
        raise InputError(f"`{unknown[0]}` must come after a command", hint=hint)
    width = max(map(len, COMMANDS))
    output.print("usage: torchenv COMMAND [OPTIONS]\n")
    output.print("Choose, build, prove and roll back PyTorch environments.\n")
    for command, (_, says) in COMMANDS.items():
        output.print(f"  {command:{width}}  {says}")
    output.print("\nSee `torchenv help COMMAND` for one of them, `torchenv --version` for the version.")
    return 0 if words else WRONG_INPUT


def _put_python_path_last() -> None:
    """Let nothing that PYTHONPATH holds stand before what torchenv and Python's library import.

    What only lies there is still found: torchenv may have been installed so.
    """
    named = os.environ.get("PYTHONPATH")
    if not named or sys.flags.ignore_environment:
        return
    here = os.path.abspath(__file__)  # noqa: PTH100 - as above
    entries = [os.path.abspath(entry) for entry in named.split(os.pathsep) if entry]  # noqa: PTH100
    last = [path for path in sys.path if path in entries and not here.startswith(path + os.sep)]
    sys.path[:] = [*(path for path in sys.path if path not in last), *last]


def _open_closed_streams() -> None:
    """Put something harmless where a standard stream is closed: the next file opened would take its place."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)  # noqa: FBT003 - it takes no keyword
