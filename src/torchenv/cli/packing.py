"""`bundle` and `pack`: what is one file, for a machine without a network and for storage that nodes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchenv.cli.options import add_environment, add_json
from torchenv.cli.parser import CommandSpec, Parser, reader

if TYPE_CHECKING:
    from torchenv.cli.session import Session


class BundleFlags(NamedTuple):
    """What `bundle` takes."""

    target: str
    file: str


def declare_bundle(parser: Parser) -> None:
    """Declare what `bundle` takes."""
    parser.add_argument("target", metavar="TARGET", help="Target to bundle")
    parser.add_argument("file", metavar="FILE", help="File to write, a tar archive")
    add_json(parser, "Print the torchenv.bundle/1 document")


def bundle(flags: BundleFlags, session: Session) -> int:
    """Write wheels, lock, interpreter, uv and torchenv itself into one file, with a script that builds."""
    from functools import partial

    from torchenv.actions.bundle import BundleOrder, choose_tool_python
    from torchenv.actions.bundle import bundle as write
    from torchenv.cli.locked import find_at_set_mirror
    from torchenv.cli.project import OWN_CATALOGUE, Project
    from torchenv.installers.tools import fetch_python_to
    from torchenv.installers.uv import uv_program
    from torchenv.lockfile.lockset import FILE, normalise
    from torchenv.render.packing import describe_bundle, write_build_script

    project, output = Project.of(session), session.output
    target = project.require_lock_set().target(flags.target)
    found = project.lock(target)
    for folder in found.local:
        output.note(f"{folder.path} is not in the bundle: build in a checkout, with `sh build.sh PROJECT`")
    names = [name for name in (FILE, target.file, OWN_CATALOGUE) if project.content(name) is not None]
    files = {name: normalise(project.content(name) or b"") for name in names}
    files["torchenv.toml"] = project.text
    files["build.sh"] = write_build_script(target, tool_python=choose_tool_python(target.python))
    path = session.settings.cwd / flags.file
    order = BundleOrder(
        target=target,
        lock=find_at_set_mirror(found, target, session),
        files=files,
        path=path,
        package_index=session.mirrors.packages,
        fetch_python=partial(fetch_python_to, session.programs, uv_program()),
    )
    made = write(order, session.make_installer(), session.programs, session.network.download, output.say)
    size = path.stat().st_size
    output.show(
        lambda: describe_bundle(flags.file, size, made),
        lambda: {**made.to_document(), "path": str(path), "size": size},
    )
    return 0


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
    "bundle": CommandSpec(declare_bundle, reader(BundleFlags), bundle),
    "pack": CommandSpec(declare_pack, reader(PackFlags), pack),
}
