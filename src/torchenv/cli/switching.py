"""`use`, `rollback`, `history`, `run`: which environment is active, and what runs in it."""

from __future__ import annotations

import os
import shlex
from argparse import REMAINDER
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torchenv.cli.gather import find_environment, list_roots, note_surroundings, rescan_checkpoints
from torchenv.cli.options import add_environment, add_json, add_profile
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.session import Session, now
from torchenv.errors import InputError

if TYPE_CHECKING:
    from torchenv.actions.run import ProgramEntry
    from torchenv.actions.switch import Switched
    from torchenv.system.process import Command
    from torchenv.workspace.records import Environment

FOUND_SOMETHING = 1


class UseFlags(NamedTuple):
    """What `use` takes."""

    environment: str
    force: bool


def declare_use(parser: Parser) -> None:
    """Declare what `use` takes."""
    add_environment(parser, required=True)
    parser.add_argument(
        "--force", action="store_true", help="Switch even if it has not passed its smoke commands"
    )
    add_profile(parser, "Profile whose `[smoke] required` is used")
    add_json(parser, "Print the torchenv.switch/1 document")


def use(flags: UseFlags, session: Session) -> int:
    """Switch, and tell what that means."""
    from torchenv.actions.switch import use as switch

    proof = session.profile.smoke
    rescan_checkpoints(session)
    switched = switch(flags.environment, session.store, session.outside, force=flags.force, proof=proof)
    note_surroundings(switched.now.torch, session)
    _show_switch(switched, session)
    return 0


class RollbackFlags(NamedTuple):
    """What `rollback` takes."""

    environment: str | None
    ask: bool
    with_checkpoints: bool


def declare_rollback(parser: Parser) -> None:
    """Declare what `rollback` takes."""
    parser.add_argument(
        "environment", nargs="?", metavar="ENV", help="Environment to switch to (default: the previous one)"
    )
    parser.add_argument("--ask", action="store_true", help="Ask before switching")
    parser.add_argument(
        "--with-checkpoints",
        action="store_true",
        help="Then copy the newest checkpoint of every run so that it can be read",
    )
    add_json(parser, "Print the torchenv.switch/1 document")


def rollback(flags: RollbackFlags, session: Session) -> int:
    """Describe what cannot be read there, switch back, and tell what that means."""
    from torchenv.actions.switch import rollback as switch_back
    from torchenv.actions.switch import way_back
    from torchenv.checkpoints.lifeboats import describe_run

    named, output = flags.environment, session.output
    seen = rescan_checkpoints(session)
    # What is done at once needs no advice.
    advice = not flags.with_checkpoints
    if flags.ask:
        manifest = session.store.read()
        target, notes = way_back(manifest, named, session.store, session.outside)
        for note in notes:
            output.say(note)
        for run_seen in manifest.runs:
            for line in describe_run(run_seen, target, advice=advice):
                output.say(line)
        if not session.ask_yes_no(f"switch back to environment {target} ({target.path})?"):
            output.say("nothing was switched")
            return 0
        named = str(target.number)
    switched = switch_back(named, session.store, session.outside, advice=advice)
    if not seen.roots:
        output.note("no checkpoints known; name their directories in torchenv.toml: [checkpoints] roots")
    if flags.with_checkpoints:
        return _copy_checkpoints(switched, session)
    _show_switch(switched, session)
    return 0


def _show_switch(switched: Switched, session: Session, copied: Mapping[str, Any] | None = None) -> None:
    """Print a move of the pointer; `copied` is what the document says besides."""
    from torchenv.render.switch import describe_switch, encode_switch

    def document() -> dict[str, Any]:
        # Only the document names every checkpoint, which takes the whole index.
        from torchenv.actions.run_readability import judge_runs

        runs = judge_runs(switched, session.store, session.settings.checkpoint_system)
        return {**encode_switch(switched, runs), **(copied or {})}

    if session.output.is_json:
        session.output.print_document(document())
    else:
        session.output.report(describe_switch(switched, program=session.settings.program))


def _copy_checkpoints(switched: Switched, session: Session) -> int:
    from torchenv.actions.run_readability import copy_newest_saves
    from torchenv.render.checkpoints import describe_copied, encode_copied

    copies, refused = copy_newest_saves(
        switched,
        session.store,
        system=session.settings.checkpoint_system,
        progress=session.output.progress("copying"),
        say=session.output.say,
    )
    document = encode_copied(copies, refused)
    _show_switch(switched, session, {"copies": document["copies"], "refused": document["refused"]})
    if not session.output.is_json:
        session.output.report(describe_copied(copies, refused))
    # It has switched, as asked: what is left is a finding, and no reason to think that nothing was done.
    return FOUND_SOMETHING if refused else 0


class HistoryFlags(NamedTuple):
    """What `history` takes."""


def declare_history(parser: Parser) -> None:
    """Declare what `history` takes."""
    add_json(parser, "Print the torchenv.history/1 document")


def history(_: HistoryFlags, session: Session) -> int:
    """Print what the manifest tells, the oldest first."""
    from torchenv.render.switch import describe_history, encode_history

    manifest = session.store.read()
    session.output.show(
        lambda: describe_history(manifest) or f"no switches in {session.settings.root} yet",
        lambda: encode_history(manifest),
    )
    return 0


class RunFlags(NamedTuple):
    """What `run` takes."""

    environment: str | None
    write_for: str | None
    force: bool
    outside: bool
    packed: str | None
    unpack_in: str | None
    mount: bool
    command: list[str]


def declare_run(parser: Parser) -> None:
    """Declare what `run` takes."""
    parser.usage = (
        "torchenv run [-e ENV | --packed FILE] [--write-for VERSION] [--outside] -- COMMAND [ARGUMENT ...]"
    )
    parser.add_argument(
        "-e", "--environment", metavar="ENV", help="Environment to run in (default: the active environment)"
    )
    parser.add_argument(
        "--write-for",
        metavar="VERSION",
        help="Write distributed checkpoints that this torch reads, such as 2.14",
    )
    parser.add_argument(
        "--force", action="store_true", help="Use --write-for with any torch, even an untested one"
    )
    parser.add_argument(
        "--outside", action="store_true", help="Allow a command that only another Python on PATH has"
    )
    parser.add_argument(
        "--packed", metavar="FILE", help="Run in the environment that `torchenv pack` made one file of"
    )
    parser.add_argument(
        "--unpack-in", metavar="DIR", help="Unpack it below DIR (default: a directory in TMPDIR)"
    )
    parser.add_argument("--mount", action="store_true", help="Mount FILE.squashfs in place of unpacking it")
    parser.add_argument("command", nargs=REMAINDER, metavar="COMMAND", help="Command to run, after `--`")


def run(flags: RunFlags, session: Session) -> int:
    """Start the command with the environment activated; its exit code and signals are its own."""
    from torchenv.actions.run import build_environ, entry, find_other_torch, replace_torchrun
    from torchenv.actions.write_for import hook_variables
    from torchenv.system.process import Command, become

    environ, output = session.settings.environ, session.output
    words = flags.command[1:] if flags.command[:1] == ["--"] else flags.command
    if not words:
        raise InputError("no command to run", hint="write it after `--`, as in `torchenv run -- python -V`")
    if flags.packed is not None:
        return _run_packed(flags.packed, words, flags, session)
    for option, is_given in (("--unpack-in", flags.unpack_in is not None), ("--mount", flags.mount)):
        if is_given:
            raise InputError(f"`{option}` is for a pack", hint="name one with `--packed FILE`")
    environment = find_environment(flags.environment, session)
    change = entry(environment, session.store, environ)
    command = Command(replace_torchrun(words, change))
    if command.argv[0] != words[0]:
        output.note(f"environment {environment} has no `{words[0]}`; running `{' '.join(command.argv[:3])}`")
    else:
        _refuse_outside(words, change, f"environment {environment}", flags, session)
    if (other := find_other_torch(environ)) is not None:
        output.note(f"PYTHONPATH puts another torch first: {other}")
    _note_stranded_runs(session)
    variables = build_environ(change, environ)
    variables.update(hook_variables(environ, change.directory, session.store.written_path.absolute()))
    target = flags.write_for or session.profile.checkpoints.write_for
    if target is None:
        become(command, variables)
    return _run_writing_for(target, environment, command, variables, session, force=flags.force)


# A person reads of this many runs before a program starts; `status` names all.
_NOTED = 3


def _note_stranded_runs(session: Session) -> None:
    """Note, while an upgrade is on trial, the runs that the environment before it cannot go on with."""
    if (trial := session.store.read_trial()) is None:
        return
    from torchenv.checkpoints.lifeboats import list_stranded
    from torchenv.render.status import describe_stranded

    manifest = session.store.read()
    old = next((one for one in manifest.environments if one.number == trial.old), None)
    if old is None or not old.live:
        return
    stranded = list_stranded(rescan_checkpoints(session, record=False).runs, old, manifest)
    for run in stranded[:_NOTED]:
        for line in describe_stranded(run, old, now()):
            session.output.note(line.lstrip())
    if len(stranded) > _NOTED:
        session.output.note(f"and the same for {len(stranded) - _NOTED} more runs; see `torchenv status`")


def _refuse_outside(
    words: list[str],
    change: ProgramEntry,
    where: str,
    flags: RunFlags,
    session: Session,
) -> None:
    """Name a command that the environment lacks; raises `NothingSuits` where another Python would run it."""
    from torchenv.actions.run import find_outside
    from torchenv.errors import NothingSuits

    found = find_outside(words, change, session.settings.environ)
    if found is None:
        return
    if found.is_python and not flags.outside:
        again = shlex.join([*session.settings.command, "run", *_repeat(flags), "--outside", "--", *words])
        raise NothingSuits(
            f"{where} has no `{words[0]}`, and {found.path} runs another Python",
            hint=f"install it in the environment, or run it anyway with `{again}`",
        )
    session.output.note(f"{where} has no `{words[0]}`; running {found.path}")


def _repeat(flags: RunFlags) -> list[str]:
    """Return the options that a command was given, as words of the same command."""
    named = {
        "--environment": flags.environment,
        "--write-for": flags.write_for,
        "--packed": flags.packed,
        "--unpack-in": flags.unpack_in,
    }
    given = {"--force": flags.force, "--mount": flags.mount}
    # With `=`, as a value may begin with a hyphen.
    valued = [f"{option}={value}" for option, value in named.items() if value is not None]
    return [*valued, *(option for option, is_given in given.items() if is_given)]


def _run_packed(packed: str, words: list[str], flags: RunFlags, session: Session) -> int:
    """Start the command in an environment that is one file, from the disk of this machine."""
    from torchenv.actions.pack import make_entry, mount_pack, open_pack
    from torchenv.system.packfile import PackFacts
    from torchenv.system.process import attend, become, end_by_signal

    settings = session.settings
    if flags.environment is not None:
        raise InputError("`-e` and `--packed` exclude each other", hint="leave one of them out")
    if flags.write_for is not None:
        hint = "pack an environment whose profile says `write-for`, or run it from its workspace"
        raise InputError("`--write-for` does not reach a packed environment", hint=hint)
    path = settings.cwd / packed
    if not os.path.isfile(path):
        what = "is not a file" if os.path.exists(path) else "does not exist"
        raise InputError(f"`{packed}` {what}", hint="make one first: see `torchenv help pack`")
    place = settings.node_directory
    if flags.unpack_in:
        # Of a link that the user names, what it leads to counts.
        place = (settings.cwd / flags.unpack_in).resolve()
    if not flags.mount:
        directory = open_pack(path, place, session.programs, settings.platform, session.output.say)
        change = make_entry(directory, PackFacts.read(path), settings.environ)
        become(*_enter(change, words, flags, session))
    facts = PackFacts.read(path)
    with mount_pack(path, facts, place, session.programs, settings.platform) as directory:
        command, variables = _enter(make_entry(directory, facts, settings.environ), words, flags, session)
        code = attend(command, variables)
    if code < 0:
        end_by_signal(-code)
    return code


def _enter(
    change: ProgramEntry, words: list[str], flags: RunFlags, session: Session
) -> tuple[Command, dict[str, str]]:
    from torchenv.actions.run import build_environ, replace_torchrun
    from torchenv.system.process import Command

    command = Command(replace_torchrun(words, change))
    if command.argv[0] == words[0]:
        _refuse_outside(words, change, f"`{flags.packed}`", flags, session)
    return command, build_environ(change, session.settings.environ)


def _run_writing_for(
    target: str,
    environment: Environment,
    command: Command,
    variables: dict[str, str],
    session: Session,
    *,
    force: bool,
) -> int:
    """Run the command, and look at what it wrote: 1 where the older torch cannot read a save of it."""
    from torchenv.actions.downgrade import DowngradeTarget
    from torchenv.actions.run import directory_of
    from torchenv.actions.write_for import find_new_form, has_startup_file, refuse_lost_hook, write_for
    from torchenv.system.process import attend, become, end_by_signal

    output = session.output
    changed = write_for(target, environment, force=force)
    output.say(changed.says)
    if not changed.variables:
        become(command, variables)
    has_startup = has_startup_file(directory_of(environment, session.store))
    refuse_lost_hook(command.argv, has_startup=has_startup)
    started = now().timestamp()
    code = attend(command, {**variables, **changed.variables})
    reader_of = DowngradeTarget.of(target, session.store.read(), session.settings.checkpoint_system)
    found = find_new_form(list_roots(session), session.store, reader_of, started)
    for save in found:
        output.say(f"{save.path}: torch {reader_of.torch} cannot read it: {'; '.join(save.reasons)}")
    if found:
        first = found[0].path
        output.say(
            f"hint: make a copy that it reads with `torchenv checkpoints downgrade {first} --for {target}`"
        )
    if code < 0:
        end_by_signal(-code)
    return code or (FOUND_SOMETHING if found else 0)


COMMANDS = {
    "use": CommandSpec(declare_use, reader(UseFlags), use),
    "rollback": CommandSpec(declare_rollback, reader(RollbackFlags), rollback),
    "history": CommandSpec(declare_history, reader(HistoryFlags), history),
    "run": CommandSpec(declare_run, reader(RunFlags), run),
}
