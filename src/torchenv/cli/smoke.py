"""`torchenv smoke`: prove an environment by computing in it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context
from torchenv.cli.proving import add_proving, must_import, working_directory

FOUND_SOMETHING = 1


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("environment", nargs="?", metavar="ENV", help="a number, a name or a torch version")
    add_proving(parser)


def run(arguments: Namespace, context: Context) -> int:
    """Try it, record it as proven or failed, and print every step."""
    from platform import node

    from torchenv.actions.smoke import Trial, smoke
    from torchenv.render.proofs import describe_smoke, encode_smoke

    environment = context.environment(arguments.environment)
    trial = Trial(
        environment=environment,
        smoke=context.profile.smoke,
        packages=must_import(context, environment),
        catalogue=context.catalogue,
        host=context.host,
        node=node(),
        directory=working_directory(context),
        environ=context.environ,
    )
    smoked = smoke(trial, context.ports)
    if arguments.json:
        context.print_json(encode_smoke(smoked))
    else:
        context.out(describe_smoke(smoked))
    return 0 if smoked.proof.passed else FOUND_SOMETHING
