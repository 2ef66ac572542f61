"""`torchenv verify`: prove that an environment is as it was built."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context

FOUND_SOMETHING = 1


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("environment", nargs="?", metavar="ENV", help="else the environment in use")
    parser.add_argument("--json", action="store_true", help="print the torchenv.verify/1 document")


def run(arguments: Namespace, context: Context) -> int:
    """Read every file, and list what is not as it was."""
    from torchenv.actions.verify import verify_environment
    from torchenv.render.status import encode_findings

    environment = context.environment(arguments.environment)
    findings = verify_environment(environment, context.store, context.progress("reading"))
    if arguments.json:
        context.print_json(encode_findings(environment, findings))
    else:
        context.out("\n".join(map(str, findings)) or f"environment {environment} is as it was, file by file")
    return FOUND_SOMETHING if findings else 0
