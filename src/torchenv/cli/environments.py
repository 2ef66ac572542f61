"""What a workspace holds: `list`, `show`, `status`, `diff`, `adopt`, `forget`, `remove`, `prune` and more."""

from __future__ import annotations

import os
import re
import shlex
from argparse import ArgumentTypeError
from datetime import timedelta
from typing import NamedTuple

from torchenv.cli.choice import parse_interpreter
from torchenv.cli.gather import (
    explain_irreplaceable,
    find_environment,
    probe_host,
    rescan_checkpoints,
)
from torchenv.cli.options import add_environment, add_installer, add_json, add_offline, add_profile
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.session import Session, now
from torchenv.errors import InputError, WorkspaceError


class ListFlags(NamedTuple):
    """What `list` takes."""

    all: bool


def declare_list(parser: Parser) -> None:
    """Declare what `list` takes."""
    parser.add_argument("--all", action="store_true", help="Show removed environments and every run too")
    add_json(parser, "Print the torchenv.list/1 document")


def list_environments(flags: ListFlags, session: Session) -> int:
    """Print what the manifest says; nothing is changed and nothing waits."""
    manifest = session.store.read()
    if session.output.is_json:
        from torchenv.workspace.keys import as_json

        environments = [as_json(environment) for environment in manifest.environments]
        document = {"schema": "torchenv.list/1", "current": manifest.current, "environments": environments}
        session.output.print_document(document)
        return 0
    from torchenv.render.environment import describe_list

    none = f"no environments in {session.settings.root} yet: make one with `torchenv create`"
    session.output.print_text(describe_list(manifest, show_all=flags.all) or none)
    return 0


class ShowFlags(NamedTuple):
    """What `show` takes."""

    environment: str | None


def declare_show(parser: Parser) -> None:
    """Declare what `show` takes."""
    add_environment(parser)
    add_json(parser)


def show(flags: ShowFlags, session: Session) -> int:
    """Print what is recorded of one environment."""
    from torchenv.render.environment import describe_show, encode_environment

    environment = find_environment(flags.environment, session, removed=True)
    session.output.show(
        lambda: describe_show(environment, session.store),
        lambda: encode_environment(environment, session.store),
    )
    return 0


class StatusFlags(NamedTuple):
    """What `status` takes."""


def declare_status(parser: Parser) -> None:
    """Declare what `status` takes."""
    add_json(parser, "Print the torchenv.status/1 document")


def status(_: StatusFlags, session: Session) -> int:
    """Look and tell; nothing is changed."""
    from torchenv.actions.status import Machine
    from torchenv.actions.status import status as look
    from torchenv.render.status import describe_status, encode_status

    settings = session.settings
    runs = rescan_checkpoints(session, record=False).runs
    found = look(
        session.store,
        settings.environ,
        settings.project,
        session.running,
        runs,
        around=Machine(probe_host(session), session.catalogue),
    )
    session.output.show(
        lambda: describe_status(found, settings.root, now()), lambda: encode_status(found, settings.root)
    )
    return 0


class DiffFlags(NamedTuple):
    """What `diff` takes."""

    before: str
    after: str


def declare_diff(parser: Parser) -> None:
    """Declare what `diff` takes."""
    parser.add_argument("before", metavar="ENV", help="Number, name or torch version")
    parser.add_argument("after", metavar="ENV", help="Environment to compare it with")
    add_json(parser, "Print the torchenv.diff/1 document")


def diff(flags: DiffFlags, session: Session) -> int:
    """Compare packages, backend and interpreter."""
    from torchenv.actions.diff import diff as compare
    from torchenv.render.status import describe_diff, encode_diff

    before = find_environment(flags.before, session, removed=True)
    after = find_environment(flags.after, session, removed=True)
    differences = compare(before, after, session.store)
    session.output.show(
        lambda: describe_diff(differences) or f"environments {before} and {after} hold the same packages",
        lambda: encode_diff(before, after, differences),
    )
    return 0


class AdoptFlags(NamedTuple):
    """What `adopt` takes."""

    path: str


def declare_adopt(parser: Parser) -> None:
    """Declare what `adopt` takes."""
    parser.add_argument("path", metavar="PATH", help="Directory of a venv or a conda environment")


def adopt(flags: AdoptFlags, session: Session) -> int:
    """Record it and print its number."""
    from torchenv.actions.adopt import adopt as record

    adopted = record(session.settings.cwd / flags.path, session.catalogue, session.make_ports())
    environment = adopted.environment
    what = (
        f"recorded {environment.path} as environment {environment}; it is only read"
        if adopted.is_new
        else f"{environment.path} is already environment {environment}"
    )
    session.output.say(what)
    session.output.print(str(environment.number))
    return 0


class ChangeFlags(NamedTuple):
    """What `add` and `drop` take."""

    packages: list[str]
    in_place: bool


def declare_add(parser: Parser) -> None:
    """Declare what `add` takes."""
    parser.add_argument("packages", nargs="+", metavar="PKG", help="Package, such as wandb or 'numpy>=2.2'")
    _add_changing(parser)


def declare_drop(parser: Parser) -> None:
    """Declare what `drop` takes."""
    parser.add_argument("packages", nargs="+", metavar="PKG", help="Package, by its name")
    _add_changing(parser)


def _add_changing(parser: Parser) -> None:
    parser.add_argument(
        "--in-place", action="store_true", help="Change the environment itself; build no new one beside it"
    )
    add_offline(parser)
    add_installer(parser)
    add_profile(parser, "Profile to use (default: torchenv.toml, else `default`)")
    add_json(parser, "Print what `torchenv show --json` prints of the environment")


def add(flags: ChangeFlags, session: Session) -> int:
    """Lock the active environment with more packages, and build that."""
    return _change(flags, session, added=tuple(flags.packages))


def drop(flags: ChangeFlags, session: Session) -> int:
    """Lock the active environment without some packages, and build that."""
    return _change(flags, session, dropped=tuple(flags.packages))


def _change(
    flags: ChangeFlags, session: Session, *, added: tuple[str, ...] = (), dropped: tuple[str, ...] = ()
) -> int:
    from torchenv.actions.change import ChangeOrder, change
    from torchenv.render.environment import describe_change, encode_environment

    is_macos = session.settings.system == "darwin"
    order = ChangeOrder(
        added=added,
        dropped=dropped,
        profile=session.profile,
        catalogue=session.catalogue,
        package_index=session.mirrors.packages,
        macos=str(probe_host(session).macos) if is_macos else None,
        in_place=flags.in_place,
    )
    changed = change(order, session.make_ports(), session.running)
    if session.output.is_json:
        session.output.say(describe_change(changed))
        session.output.print_document(encode_environment(changed.after, session.store))
    else:
        session.output.report(describe_change(changed))
    return 0


class ForgetFlags(NamedTuple):
    """What `forget` takes."""

    environment: str


def declare_forget(parser: Parser) -> None:
    """Declare what `forget` takes."""
    add_environment(parser, required=True)


def forget(flags: ForgetFlags, session: Session) -> int:
    """Take it off the record and print where its files stay."""
    from torchenv.actions.forget import forget as drop_from_record

    environment = drop_from_record(flags.environment, session.store)
    again = f"record it again with `torchenv adopt {shlex.quote(environment.path)}`"
    session.output.report(f"forgot environment {environment}; its files stay")
    session.output.say(again)
    return 0


class RemoveFlags(NamedTuple):
    """What `remove` takes."""

    environments: list[str]
    force: bool


def declare_remove(parser: Parser) -> None:
    """Declare what `remove` takes."""
    parser.add_argument("environments", nargs="+", metavar="ENV", help="Number, name or torch version")
    parser.add_argument(
        "--force",
        action="store_true",
        help="Remove even if it is the rollback target, or could not be rebuilt",
    )
    add_offline(parser, "Do not check whether it could be rebuilt")


def remove(flags: RemoveFlags, session: Session) -> int:
    """Remove them all, or say why one must stay."""
    from torchenv.actions.remove import remove as delete
    from torchenv.render.status import describe_removed

    for removed in delete(
        flags.environments,
        session.store,
        session.running,
        explain_irreplaceable(session, force=flags.force),
        force=flags.force,
    ):
        session.output.report(describe_removed(removed))
    return 0


class PruneFlags(NamedTuple):
    """What `prune` takes."""

    keep: int | None
    older_than: timedelta | None
    dry_run: bool
    force: bool


def declare_prune(parser: Parser) -> None:
    """Declare what `prune` takes."""
    parser.add_argument(
        "--keep",
        type=_parse_count,
        metavar="N",
        help="Keep the newest N (default: 2, unless an age is given)",
    )
    parser.add_argument(
        "--older-than", type=_parse_age, metavar="30d", help="Remove only those unused for this long"
    )
    parser.add_argument("--dry-run", action="store_true", help="Show what would be removed")
    parser.add_argument("--force", action="store_true", help="Remove even those that could not be rebuilt")
    add_offline(parser, "Do not check whether they could be rebuilt")


def prune(flags: PruneFlags, session: Session) -> int:
    """Remove what may go, and say why the rest stays."""
    from torchenv.actions.remove import Pruning
    from torchenv.actions.remove import prune as delete
    from torchenv.render.status import describe_pruned

    pruned = delete(
        Pruning.of(flags.keep, flags.older_than, now()),
        session.store,
        session.running,
        explain_irreplaceable(session, force=flags.force),
        dry_run=flags.dry_run,
    )
    said = describe_pruned(pruned, dry_run=flags.dry_run)
    if flags.dry_run:
        session.output.print_text(said)
    else:
        session.output.report(said)
    return 0


class RestoreFlags(NamedTuple):
    """What `restore` takes."""

    environment: str
    python: str | None


def declare_restore(parser: Parser) -> None:
    """Declare what `restore` takes."""
    add_environment(parser, required=True)
    parser.add_argument(
        "--python", metavar="V|PATH", help="Interpreter to build on (default: the one that it had)"
    )
    add_offline(parser)
    add_installer(parser)
    add_profile(parser, "Profile whose `[install]` is used")


def restore(flags: RestoreFlags, session: Session) -> int:
    """Build it, and print its number."""
    from torchenv.actions.restore import Interpreters
    from torchenv.actions.restore import restore as rebuild

    head = None if session.settings.is_offline else session.head
    asked = None if flags.python is None else parse_interpreter(flags.python, session.settings.cwd)
    interpreters = Interpreters(asked=asked, find=lambda: probe_host(session, python=asked).pythons)
    restored = rebuild(flags.environment, session.make_ports(), interpreters, head, session.running)
    session.output.say(f"rebuilt environment {restored}: {restored.path}")
    session.output.print(str(restored.number))
    return 0


class TrustFlags(NamedTuple):
    """What `trust` takes."""

    directory: str


def declare_trust(parser: Parser) -> None:
    """Declare what `trust` takes."""
    parser.add_argument("directory", metavar="DIR", help="Workspace, or the project that it lies in")


def trust(flags: TrustFlags, session: Session) -> int:
    """Record for this user that a workspace may be changed and run from."""
    named = session.settings.cwd / flags.directory
    places = (named, named / ".torchenv")
    root = next((place for place in places if os.path.lexists(place / "manifest.toml")), None)
    if root is None:
        hint = "see which workspace is used here with `torchenv status`"
        raise InputError(f"`{named}` holds no workspace, so there is nothing to accept", hint=hint)
    try:
        session.trust_record.accept(root)
    except OSError as error:
        raise WorkspaceError(
            f"what you trust cannot be recorded: {error.strerror or error}",
            hint=f"name the workspace instead: `{shlex.join(['torchenv', '--root', str(root), 'status'])}`",
        ) from None
    session.output.say(f"workspace `{root}` is trusted from now on")
    return 0


def _parse_count(text: str) -> int:
    if re.fullmatch(r"-[0-9]+", text):
        raise ArgumentTypeError("must be 0 or more")
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ArgumentTypeError(f"`{text}` is not a number")
    return int(text)


def _parse_age(text: str) -> timedelta:
    from torchenv.profile.model import duration

    age = duration(text)
    if age is None:
        raise ArgumentTypeError(f"`{text}` is not a length of time such as 30d or 12h")
    return age


COMMANDS = {
    "list": CommandSpec(declare_list, reader(ListFlags), list_environments),
    "show": CommandSpec(declare_show, reader(ShowFlags), show),
    "status": CommandSpec(declare_status, reader(StatusFlags), status),
    "diff": CommandSpec(declare_diff, reader(DiffFlags), diff),
    "adopt": CommandSpec(declare_adopt, reader(AdoptFlags), adopt),
    "add": CommandSpec(declare_add, reader(ChangeFlags), add),
    "drop": CommandSpec(declare_drop, reader(ChangeFlags), drop),
    "forget": CommandSpec(declare_forget, reader(ForgetFlags), forget),
    "remove": CommandSpec(declare_remove, reader(RemoveFlags), remove),
    "prune": CommandSpec(declare_prune, reader(PruneFlags), prune),
    "trust": CommandSpec(declare_trust, reader(TrustFlags), trust),
    "restore": CommandSpec(declare_restore, reader(RestoreFlags), restore),
}
