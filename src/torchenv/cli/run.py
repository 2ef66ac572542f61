"""`torchenv run`: run a command in an environment, in torchenv's place."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser, Namespace
from typing import TYPE_CHECKING

from torchenv.cli.context import Context
from torchenv.errors import InputError

if TYPE_CHECKING:
    from torchenv.system.process import Command
    from torchenv.workspace.records import Environment

FOUND_SOMETHING = 1


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.usage = "torchenv run [-e ENV] [--write-for VERSION] -- COMMAND [ARGUMENT ...]"
    parser.add_argument("-e", "--environment", metavar="ENV", help="else the environment in use")
    parser.add_argument(
        "--write-for",
        metavar="VERSION",
        help="write distributed checkpoints for this torch: 2.14",
    )
    parser.add_argument("--force", action="store_true", help="write so with any torch, tested or not")
    parser.add_argument("command", nargs=REMAINDER, metavar="COMMAND", help="the command, after `--`")


def run(arguments: Namespace, context: Context) -> int:
    """Start the command with the environment activated; its exit code and signals are its own."""
    from torchenv.actions.run import build_environ, entry, find_other_torch, replace_torchrun
    from torchenv.actions.write_for import hook_variables
    from torchenv.system.process import Command, become

    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not words:
        raise InputError("there is no command to run", hint="write `torchenv run -- python train.py`")
    environment = context.environment(arguments.environment)
    change = entry(environment, context.store, context.environ)
    command = Command(replace_torchrun(words, change))
    if command.argv[0] != words[0]:
        context.say(
            f"note: environment {environment} has no `{words[0]}`; running `{' '.join(command.argv[:3])}`"
        )
    if (other := find_other_torch(context.environ)) is not None:
        context.say(f"note: PYTHONPATH leads to another torch, which is imported first: {other}")
    variables = build_environ(change, context.environ)
    variables.update(hook_variables(context.environ, change.directory, context.store.written_path.absolute()))
    target = arguments.write_for or context.profile.checkpoints.write_for
    if target is None:
        become(command, variables)
    return _run_writing_for(target, environment, command, variables, context)


def _run_writing_for(
    target: str, environment: Environment, command: Command, variables: dict[str, str], context: Context
) -> int:
    """Run the command, and look at what it wrote: 1 where the older torch cannot read a save of it."""
    from torchenv.actions.downgrade import DowngradeTarget
    from torchenv.actions.run import directory_of
    from torchenv.actions.write_for import find_new_form, has_startup_file, refuse_lost_hook, write_for
    from torchenv.cli.rescan import list_roots
    from torchenv.system.process import attend, become, end_by_signal

    changed = write_for(target, environment, force=context.arguments.force)
    context.say(changed.says)
    if not changed.variables:
        become(command, variables)
    has_startup = has_startup_file(directory_of(environment, context.store))
    refuse_lost_hook(command.argv, has_startup=has_startup)
    started = context.now().timestamp()
    code = attend(command, {**variables, **changed.variables})
    reader = DowngradeTarget.of(target, context.store.read(), context.system)
    found = find_new_form(list_roots(context), context.store, reader, started)
    for save in found:
        context.say(f"{save.path}: torch {reader.torch} cannot read it: {'; '.join(save.reasons)}")
    if found:
        first = found[0].path
        context.say(
            f"hint: `torchenv checkpoints downgrade {first} --for {target}` makes a copy that it reads"
        )
    if code < 0:
        end_by_signal(-code)
    return code or (FOUND_SOMETHING if found else 0)
