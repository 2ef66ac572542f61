"""`catalogue`: what PyTorch publishes, whether the indexes agree, and what they correct."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchenv.cli.options import add_catalogue, add_json, add_profile
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.session import Session, read_text

if TYPE_CHECKING:
    from torchenv.actions.catalogue import CatalogueDifference

FOUND_SOMETHING = 1


class CatalogueFlags(NamedTuple):
    """What `catalogue` takes."""

    what: str
    version: str | None


def declare_catalogue(parser: Parser) -> None:
    """Declare what `catalogue` takes."""
    parser.add_argument(
        "what",
        metavar="{show,check,update}",
        choices=("show", "check", "update"),
        help="Print the catalogue, compare it with the indexes, or correct a catalogue of your own",
    )
    parser.add_argument("version", nargs="?", help="Show only these releases: a version, a line or a range")
    add_profile(parser, "Profile whose `[index] torch` is used")
    add_catalogue(parser)
    add_json(parser)


def catalogue(flags: CatalogueFlags, session: Session) -> int:
    """Show the catalogue, or say where it differs from what the indexes serve."""
    from torchenv.render.catalogue import describe_catalogue, encode_catalogue

    found = session.catalogue
    releases = found.matching(flags.version) if flags.version else found.releases
    if flags.what == "show":
        session.output.show(lambda: describe_catalogue(releases), lambda: encode_catalogue(found, releases))
        return 0
    return _update(session) if flags.what == "update" else _check(session)


def _check(session: Session) -> int:
    from torchenv.system.documents import plain

    differences = _find_differences(session)
    session.output.show(
        lambda: "\n".join(map(str, differences)) or "the catalogue agrees with the indexes",
        lambda: {"schema": "torchenv.catalogue-check/1", "differences": plain(differences)},
    )
    return FOUND_SOMETHING if differences else 0


def _update(session: Session) -> int:
    from torchenv.actions.update_catalogue import learn, write
    from torchenv.catalogue import resources
    from torchenv.cli.session import now
    from torchenv.system.documents import Table

    own = session.own_catalogue
    # Read as the other commands read it: a file that moves an index unasked is refused.
    _ = session.catalogue
    document = resources.document(own)
    news = learn(document, session.fetch, session.mirrors.torch, today=now().date().isoformat())
    if news.entries:
        before = Table.from_toml(read_text(own, "the catalogue"), str(own)).raw() if own else {}
        write(session.own_catalogue_path, resources.lay_over(before, news.entries))
        session.output.say(f"wrote {session.own_catalogue_path}")
    for difference in news.open:
        session.output.note(
            f"{difference}: no index says what it needs of a machine; a newer torchenv may know"
        )
    session.output.print("\n".join(map(str, news.settled)) or "nothing to correct")
    return 0


def _find_differences(session: Session) -> tuple[CatalogueDifference, ...]:
    from torchenv.actions.catalogue import check

    return check(session.catalogue, session.fetch, session.mirrors.torch)


COMMANDS = {"catalogue": CommandSpec(declare_catalogue, reader(CatalogueFlags), catalogue)}
