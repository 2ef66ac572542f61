"""`torchenv catalogue`: what PyTorch publishes, whether the indexes agree, and what they correct."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from torchenv.cli.context import Context, read_text

if TYPE_CHECKING:
    from torchenv.actions.catalogue import CatalogueDifference

FOUND_SOMETHING = 1


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "what",
        metavar="{show,check,update}",
        choices=("show", "check", "update"),
        help="print it, compare it with the indexes, or write what they correct into a catalogue of your own",
    )
    parser.add_argument("version", nargs="?", help="only these releases: a version, a line or a range")
    parser.add_argument(
        "--catalogue", metavar="FILE", help="a catalogue of your own, laid over the packaged one"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(arguments: Namespace, context: Context) -> int:
    """Show the catalogue, or say where it differs from what the indexes serve."""
    from torchenv.render.catalogue import describe_catalogue, encode_catalogue

    catalogue = context.catalogue
    releases = catalogue.matching(arguments.version) if arguments.version else catalogue.releases
    if arguments.what == "show":
        if arguments.json:
            context.print_json(encode_catalogue(catalogue, releases))
        else:
            context.out(describe_catalogue(releases))
        return 0
    return _update(context) if arguments.what == "update" else _check(context)


def _check(context: Context) -> int:
    from torchenv.system.documents import plain

    differences = _differences(context)
    if context.arguments.json:
        document = {"schema": "torchenv.catalogue-check/1", "differences": plain(differences)}
        context.print_json(document)
    else:
        context.out("\n".join(map(str, differences)) or "the catalogue agrees with the indexes")
    return FOUND_SOMETHING if differences else 0


def _update(context: Context) -> int:
    from torchenv.actions.update_catalogue import UNTOLD, corrections, write
    from torchenv.catalogue.resources import lay_over
    from torchenv.system.documents import Table

    differences = _differences(context)
    corrected = corrections(context.catalogue, differences)
    own, path = context.own_catalogue, context.own_catalogue_path
    if corrected:
        before = Table.from_toml(read_text(own, "the catalogue"), str(own)).raw() if own else {}
        write(path, lay_over(before, corrected))
        context.say(f"wrote {path}")
    for each in differences:
        if each.code in UNTOLD:
            context.say(f"note: {each}: what it needs of a machine is on no index; a newer torchenv may know")
    context.out(
        "\n".join(str(each) for each in differences if each.code not in UNTOLD) or "nothing to correct"
    )
    return 0


def _differences(context: Context) -> tuple[CatalogueDifference, ...]:
    from torchenv.actions.catalogue import check

    return check(context.catalogue, context.fetch, context.mirrors.torch)
