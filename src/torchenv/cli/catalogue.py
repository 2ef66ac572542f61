"""`torchenv catalogue`: what PyTorch publishes, and whether the indexes agree."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from torchenv.cli.context import Context

FOUND_SOMETHING = 1


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("what", choices=("show", "check"), help="print it, or compare it with the indexes")
    parser.add_argument("version", nargs="?", help="only these releases: a version, a line or a range")
    parser.add_argument(
        "--catalogue", metavar="FILE", help="a catalogue of your own, laid over the packaged one"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(arguments: Namespace, context: Context) -> int:
    """Show the catalogue, or say where it differs from what the indexes serve."""
    from torchenv.render.catalogue import catalogue_document, catalogue_text

    catalogue = context.catalogue
    releases = catalogue.matching(arguments.version) if arguments.version else catalogue.releases
    if arguments.what == "show":
        if arguments.json:
            context.print_json(catalogue_document(catalogue, releases))
        else:
            context.out(catalogue_text(releases))
        return 0
    return _check(context)


def _check(context: Context) -> int:
    from torchenv.actions.catalogue import check
    from torchenv.tables import plain

    differences = check(context.catalogue, context.fetch, root=context.environ.get("TORCHENV_TORCH_INDEX"))
    if context.arguments.json:
        document = {"schema": "torchenv.catalogue-check/1", "differences": plain(differences)}
        context.print_json(document)
    else:
        context.out("\n".join(map(str, differences)) or "the catalogue agrees with the indexes")
    return FOUND_SOMETHING if differences else 0
