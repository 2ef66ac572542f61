"""`torchenv run`: run a command in an environment, in torchenv's place."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser, Namespace

from torchenv.cli.context import Context
from torchenv.errors import InputError


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
    from torchenv.actions.run import build_environ
    from torchenv.system.process import Command, become

    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not words:
        raise InputError("there is no command to run", hint="write `torchenv run -- python train.py`")
    environment = context.environment(arguments.environment)
    variables = build_environ(environment, context.store, context.environ)
    if (target := arguments.write_for or context.profile.checkpoints.write_for) is not None:
        from torchenv.actions.write_for import write_for

        changed = write_for(target, environment, force=arguments.force)
        variables.update(changed.variables)
        context.say(changed.says)
    become(Command(tuple(words)), variables)
