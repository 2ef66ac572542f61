"""`torchenv kernel`: make an environment a Jupyter kernel, or take that back."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "what",
        metavar="{install,remove}",
        choices=("install", "remove"),
        help="write the kernel, or delete it",
    )
    parser.add_argument("environment", nargs="?", metavar="ENV", help="a number, a name or a torch version")


def run(arguments: Namespace, context: Context) -> int:
    """Write or delete the kernel, and print its name."""
    from torchenv.actions.kernel import install_kernel, jupyter_data, remove_kernel
    from torchenv.system.disk import Disk

    removing = arguments.what == "remove"
    environment = context.environment(arguments.environment, removed=removing)
    data = jupyter_data(context.environ, context.home or context.cwd, sys.platform)
    if removing:
        kernel = remove_kernel(environment, data, Disk())
        context.say(f"environment {environment} is no kernel any more; it is as it was otherwise")
    else:
        kernel = install_kernel(environment, context.store, data, Disk())
        context.say(f"environment {environment} is a kernel: {kernel.directory}")
    context.out(kernel.name)
    return 0
