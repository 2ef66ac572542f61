"""`torchenv run`: run a command in an environment, in torchenv's place."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser, Namespace

from torchenv.cli.context import Context
from torchenv.errors import InputError


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.usage = "torchenv run [-e ENV] -- COMMAND [ARGUMENT ...]"
    parser.add_argument("-e", "--environment", metavar="ENV", help="else the environment in use")
    parser.add_argument("command", nargs=REMAINDER, metavar="COMMAND", help="the command, after `--`")


def run(arguments: Namespace, context: Context) -> int:
    """Start the command with the environment activated; its exit code and signals are its own."""
    from torchenv.actions.run import activated
    from torchenv.process import Command, become

    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not words:
        raise InputError("there is no command to run", hint="write `torchenv run -- python train.py`")
    environment = context.environment(arguments.environment)
    become(Command(tuple(words)), activated(environment, context.store, context.environ))
