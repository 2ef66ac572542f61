"""`torchenv fetch`: bring all wheels of a target, for a machine without a network."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context
from torchenv.cli.project import Project


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("target", metavar="TARGET", help="the target whose files are brought")
    parser.add_argument("directory", metavar="DIR", help="where they are put")


def run(arguments: Namespace, context: Context) -> int:
    """Bring them, each proven by its hash."""
    from torchenv.actions.sources import bring

    project = Project.of(context)
    target = project.require_lock_set().target(arguments.target)
    directory = context.cwd / arguments.directory
    files = bring(project.lock(target), directory, context.network.download, context.say)
    context.say(f"{len(files)} files of target {target} are in {directory}")
    context.say(f"where there is no network: torchenv sync {target.name} --offline --wheels {directory}")
    return 0
