"""`torchenv export`: write a file from which an image is built that holds a target's environment."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context
from torchenv.cli.project import Project
from torchenv.errors import InputError


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--dockerfile", metavar="TARGET", required=True, help="the target to build")
    parser.add_argument("-o", "--output", metavar="FILE", help="write it there; else it is printed")


def run(arguments: Namespace, context: Context) -> int:
    """Write a Dockerfile for a target."""
    from importlib.metadata import version

    from torchenv.render.dockerfile import dockerfile

    project = Project.of(context)
    locked = project.require_lock_set()
    target = locked.target(arguments.dockerfile)
    project.proven(target)
    text = dockerfile(target, uv=version("uv"))
    if arguments.output is None:
        context.out(text.rstrip("\n"))
        return 0
    path = context.cwd / arguments.output
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    context.say(f"wrote {path}; build it in {project.directory}, where {target.file} is")
    return 0
