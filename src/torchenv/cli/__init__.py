"""The command line: translates flags into values, calls one action, prints what it gives back."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from argparse import Namespace

    from torchenv.cli.context import Context
    from torchenv.cli.parser import Parser
    from torchenv.errors import TorchenvError

# Each command with the module that holds it and one line for people. A module is imported only when its
# command runs, and says with `options` what it takes and with `run` what it does.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "write torchenv.toml for this project"),
    "probe": ("probe", "what this machine has, and how that is known"),
    "plan": ("plan", "what would be made here, and why nothing else"),
    "create": ("create", "build a new environment beside the others"),
    "lock": ("lock", "lock every target of this project, on any machine"),
    "sync": ("sync", "build the environment that was locked for a machine like this"),
    "fetch": ("fetch", "bring all wheels of a target into a directory"),
    "export": ("export", "write a Dockerfile that builds a target's environment"),
    "adopt": ("adopt", "record an environment made elsewhere; it is only read"),
    "list": ("list", "the environments of this workspace"),
    "show": ("show", "one environment, with its plan, lock and proofs"),
    "history": ("history", "every switch, from where to where and why"),
    "diff": ("diff", "what differs between two environments"),
    "status": ("status", "where one stands, in one look"),
    "use": ("use", "put an environment in use"),
    "rollback": ("rollback", "back to the environment in use before, at once and offline"),
    "run": ("run", "run a command in an environment"),
    "smoke": ("smoke", "prove an environment by computing in it"),
    "evaluate": ("evaluate", "measure the same in two environments, and judge the difference"),
    "audit": ("audit", "what in this code the new release breaks"),
    "report": ("report", "one page on where things stand"),
    "kernel": ("kernel", "make an environment a Jupyter kernel, or take that back"),
    "activate": ("activate", "print what a shell evaluates to be in an environment"),
    "verify": ("verify", "prove that an environment is as it was built"),
    "remove": ("remove", "delete environments that nobody needs; their locks stay"),
    "prune": ("prune", "delete what is old and needed by nobody"),
    "restore": ("restore", "build a removed environment again from its lock"),
    "checkpoints": ("checkpoints", "who can read each; keep one; make copies that an older torch reads"),
    "catalogue": ("catalogue", "what PyTorch publishes: show it, check it against the indexes, update it"),
}

INTERRUPTED = 130
DEFECT = 70
WRONG_INPUT = 2
OUTPUT_FAILED = 4


def entry() -> NoReturn:
    """Run one command as a program of its own, and end it."""
    # Nearly all that a short command makes lives until its end.
    gc.set_threshold(10_000)
    code = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # Taking every module apart takes 7 ms, a tenth of a `plan`; whatever must be cleaned up has been.
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    if isinstance(sys.stdout, TextIOWrapper):
        # A path may hold what the terminal's encoding does not.
        sys.stdout.reconfigure(errors="backslashreplace")
    code = _run_guarded(list(sys.argv[1:] if argv is None else argv))
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # What is left to flush at exit must not complain as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"error: {_describe_write_failure(error)}", file=sys.stderr)
            return code or OUTPUT_FAILED
    return code


def _run_guarded(words: list[str]) -> int:
    from torchenv.errors import TorchenvError

    try:
        return _run(words)
    except TorchenvError as error:
        _explain(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Who read the output has seen enough.
        return 0
    except SystemExit as end:
        # argparse has printed a help.
        return int(end.code or 0)
    except Exception:
        import traceback

        traceback.print_exc()
        print("this is a defect in torchenv: please report it with the lines above", file=sys.stderr)
        return DEFECT


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"]):
        from torchenv import __version__

        _out(f"torchenv {__version__}")
        return 0
    from importlib import import_module

    from torchenv.cli.context import Context
    from torchenv.cli.interrupts import stoppable
    from torchenv.errors import IndexFailed

    at = _command_at(words)
    if at is None or words[at] not in COMMANDS:
        return _overview(words, None if at is None else words[at])
    name = words.pop(at)
    module = import_module(f"torchenv.cli.{COMMANDS[name][0]}")
    parser = _parser(f"torchenv {name}", COMMANDS[name][1])
    module.options(parser)
    arguments = parser.parse(words)
    context = Context.of(arguments, os.environ, out=_out, say=_teller(arguments))
    with stoppable():
        try:
            code: int = module.run(arguments, context)
        except IndexFailed as error:
            _name_what_was_ignored(error, context)
            raise
    return code


def _name_what_was_ignored(error: TorchenvError, context: Context) -> None:
    """Describe which setting of another tool would have led to another index."""
    if ignored := context.other_settings.indexes:
        said = f"ignored here: {', '.join(ignored)}; to use that index, set TORCHENV_PACKAGE_INDEX"
        error.hint = f"{error.hint}; {said}" if error.hint else said


def _command_at(words: list[str]) -> int | None:
    """Find the command, which may follow `--root DIR` and other options that all commands take."""
    return next(
        (
            at
            for at, word in enumerate(words)
            if not word.startswith("-") and (at == 0 or words[at - 1] != "--root")
        ),
        None,
    )


def _overview(words: list[str], name: str | None) -> int:
    from torchenv.errors import InputError
    from torchenv.system.documents import nearest

    if name is not None:
        hint = nearest(name, COMMANDS) or "`torchenv --help` lists the commands"
        raise InputError(f"{name!r} is not a command", hint=hint)
    unknown = [each for each in words if each not in {"-h", "--help"}]
    if unknown:
        raise InputError(f"{unknown[0]} must come after a command", hint="`torchenv --help` lists them")
    width = max(map(len, COMMANDS))
    _out("usage: torchenv COMMAND [OPTIONS]\n")
    _out("Choose, build, prove and roll back PyTorch environments.\n")
    for command, (_, says) in COMMANDS.items():
        _out(f"  {command:{width}}  {says}")
    _out("\n`torchenv COMMAND --help` says more; `torchenv --version` says which torchenv this is.")
    return 0 if words else WRONG_INPUT


def _parser(program: str, says: str) -> Parser:
    from torchenv.cli.parser import Parser

    parser = Parser(prog=program, description=f"{says[0].upper()}{says[1:]}.", allow_abbrev=False)
    parser.add_argument("--root", metavar="DIR", help="the workspace, in place of the project's own")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but results and errors")
    return parser


def _out(text: str) -> None:
    from torchenv.errors import ToolFailed

    try:
        print(_harmless(text, sys.stdout))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ToolFailed(_describe_write_failure(error)) from None


def _describe_write_failure(error: OSError) -> str:
    return f"the output cannot be written: {error.strerror or error}"


def _teller(arguments: Namespace) -> Callable[[str], None]:
    def say(text: str) -> None:
        if not arguments.quiet:
            # News that nobody reads any more stops no work.
            with suppress(OSError):
                print(_harmless(text, sys.stderr), file=sys.stderr)

    return say


def _explain(error: TorchenvError) -> None:
    print(_harmless(f"error: {error.message}", sys.stderr), file=sys.stderr)
    if error.hint:
        print(_harmless(f"hint: {error.hint}", sys.stderr), file=sys.stderr)


# Everything that may act on a terminal, but for the end of a line and the tab.
_ACTS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


def _harmless(text: str, stream: TextIO | None) -> str:
    """Write what acts on a terminal as its number; a program gets every name as it is."""
    return text.translate(_ACTS) if stream is not None and stream.isatty() else text
