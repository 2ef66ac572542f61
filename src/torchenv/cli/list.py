"""`torchenv list`: the environments of this workspace."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--json", action="store_true", help="print the torchenv.list/1 document")


def run(arguments: Namespace, context: Context) -> int:
    """Print what the manifest says; nothing is changed and nothing waits."""
    manifest = context.store.read()
    if arguments.json:
        from torchenv.workspace.records import as_json

        environments = [as_json(each) for each in manifest.environments]
        document = {"schema": "torchenv.list/1", "current": manifest.current, "environments": environments}
        context.print_json(document)
        return 0
    from torchenv.render.environment import describe_list

    context.out(
        describe_list(manifest) or f"no environments in {context.root} yet: `torchenv create` makes one"
    )
    return 0
