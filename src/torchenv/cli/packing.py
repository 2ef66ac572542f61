"""`bundle` and `pack`: what is one file, for a machine without a network and for storage that nodes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchenv.cli.options import add_environment, add_json
from torchenv.cli.parser import CommandSpec, Parser, reader

if TYPE_CHECKING:
    from torchenv.cli.session import Session


class PackFlags(NamedTuple):
    """What `pack` takes."""

    environment: str
    file: str


def declare_pack(parser: Parser) -> None:
    """Declare what `pack` takes."""
    add_environment(parser, required=True)
    parser.add_argument(
        "file", metavar="FILE", help="File to write: .tar.zst to unpack, .squashfs to unpack or mount"
    )
    add_json(parser, "Print the torchenv.pack/1 document")


def pack(flags: PackFlags, session: Session) -> int:
    """Write an environment as one file."""
    from torchenv.actions.pack import pack as write
    from torchenv.cli.gather import find_environment
    from torchenv.render.packing import describe_pack

    settings = session.settings
    path = settings.cwd / flags.file
    environment = find_environment(flags.environment, session)
    facts = write(
        environment,
        path,
        session.store,
        programs=session.programs,
        platform=settings.platform,
        say=session.output.say,
    )
    size = path.stat().st_size
    session.output.show(
        lambda: describe_pack(flags.file, size, facts),
        lambda: {**facts.to_document(), "path": str(path), "size": size},
    )
    return 0


COMMANDS = {
    "pack": CommandSpec(declare_pack, reader(PackFlags), pack),
}
