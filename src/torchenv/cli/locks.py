"""`lock`: what a team locks once, for each of its machines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from torchenv.cli.gather import read_hosts
from torchenv.cli.options import (
    add_catalogue,
    add_hosts,
    add_json,
    add_only_wheels,
    add_profile,
)
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.project import OWN_CATALOGUE, Project
from torchenv.cli.session import Session, read_text
from torchenv.errors import InputError
from torchenv.lockfile.lockset import FILE, Decided, LockSet

if TYPE_CHECKING:
    from torchenv.actions.lock import Locked, LockOrder
    from torchenv.lockfile.lock import Lock
    from torchenv.packages import CarriedPackages

FOUND_SOMETHING = 1


class LockFlags(NamedTuple):
    """What `lock` takes; an `upgrade` of True is of all packages."""

    targets: list[str]
    check: bool
    upgrade: list[str | bool]
    mirror: str | None
    dry_run: bool
    host: list[str]
    share: str | None


def declare_lock(parser: Parser) -> None:
    """Declare what `lock` takes."""
    parser.add_argument("targets", metavar="TARGET", nargs="*", help="Targets to lock (default: all)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="Only report what has drifted (uses no network)")
    how.add_argument(
        "--upgrade",
        metavar="PKG",
        nargs="?",
        const=True,
        action="append",
        default=[],
        help="Allow newer versions of PKG, or of all packages",
    )
    how.add_argument("--mirror", metavar="URL", help="Rewrite all addresses to URL/whl and URL/simple")
    parser.add_argument("--dry-run", action="store_true", help="Show what would change and write nothing")
    add_hosts(parser, "Add the target that the machine in each FILE needs, unless there is one")
    share = parser.add_mutually_exclusive_group()
    share.add_argument(
        "--fewest",
        dest="share",
        action="store_const",
        const="fewest",
        help="With --host: add as few targets as support all machines",
    )
    share.add_argument(
        "--newest",
        dest="share",
        action="store_const",
        const="newest",
        help="With --host: add what gives each machine its newest release (default)",
    )
    add_only_wheels(parser)
    add_profile(parser, "Profile to lock (default: torchenv.toml)")
    add_catalogue(parser)
    add_json(parser)


def lock(flags: LockFlags, session: Session) -> int:
    """Check, rewrite to a mirror, or lock."""
    project = Project.of(session)
    if not (flags.check or flags.dry_run):
        _refuse_foreign_catalogue(project)
    if flags.check:
        return _check(project, session)
    if flags.mirror:
        return _rewrite_to_mirror(project, flags.mirror, session, written=not flags.dry_run)
    return _lock(_add_hosts(project, flags, session), flags, session)


def _refuse_foreign_catalogue(project: Project) -> None:
    """A lock is made from what the project commits: another catalogue may only be looked through."""
    committed = project.directory / OWN_CATALOGUE
    if project.named not in (None, committed):
        hint = f"commit it as {committed}, or add --dry-run to see what it would decide"
        raise InputError(f"`{project.named}` is not a catalogue of this project", hint=hint)


def _check(project: Project, session: Session) -> int:
    found = project.lock_set
    nothing = [f"{FILE} does not exist: nothing is locked yet"]
    drifted = nothing if found is None else find_drift(found, project, session)
    session.output.show(
        lambda: "\n".join(drifted) or "lock files are up to date",
        lambda: {"schema": "torchenv.lock-check/1", "drift": drifted},
    )
    return FOUND_SOMETHING if drifted else 0


def find_drift(found: LockSet, project: Project, session: Session) -> list[str]:
    from torchenv.lockfile.lockset import drift

    def now() -> dict[str, Decided]:
        from torchenv.actions.lock import decide_targets, decision

        order = _order(project, [], session)
        return {name: decision(plan) for name, plan in decide_targets(order).items()}

    if project.wish != found.wanted:
        # What was locked is no longer read; what is new may be no profile at all, which is no drift.
        _ = project.profile
    return list(drift(found, project.wish, content=project.content, now=now))


def _add_hosts(project: Project, flags: LockFlags, session: Session) -> Project:
    """Return the project with the targets that the named hosts need, written only with the locks."""
    if not flags.host:
        if flags.share:
            hint = f"add `--host FILE`, or leave out `--{flags.share}`"
            raise InputError(f"`--{flags.share}` chooses targets for machines, and none is named", hint=hint)
        return project
    from torchenv.actions.lock import add_targets
    from torchenv.plan.fleet import find_kinds, fleet
    from torchenv.plan.targets import wish_of
    from torchenv.render.fleet import group_by_reason, name_members

    profile, torch_index = project.profile, session.mirrors.torch
    existing = find_kinds(profile, project.catalogue, torch_index=torch_index)
    wish = wish_of(profile, torch_index=torch_index)
    found = fleet(read_hosts(flags.host, session), wish, project.catalogue, existing=existing)
    for (reason, _), members in group_by_reason(found.unserved).items():
        session.output.note(f"no target supports {name_members(members)}: {reason}")
    taken = [target.name for target in profile.targets]
    needed = found.list_new_targets(taken, is_fewest=flags.share == "fewest")
    for target in needed:
        session.output.say(
            f"adding target {target.name}: {target.platform}, Python {target.python}, {target.backend}"
        )
    return replace(project, text=add_targets(project.text, needed)) if needed else project


def _lock(project: Project, flags: LockFlags, session: Session) -> int:
    from torchenv.actions.lock import lock as make_locks
    from torchenv.actions.lock import write
    from torchenv.system.disk import Disk, explain_refusals, rewrite_text

    _refuse_foreign_locks(project, frozenset(flags.targets))
    order = _order(project, flags.upgrade, session, builds=not flags.dry_run)
    order = replace(order, only=frozenset(flags.targets))
    locked = make_locks(order, session.make_installer(), session.output.say)
    for note in locked.notes():
        session.output.note(note)
    if not flags.dry_run:
        disk = Disk()
        if project.path is not None and project.text != read_text(project.path, "the profile"):
            with explain_refusals(project.path):
                rewrite_text(project.path, project.text)
        # A target that was not decided now keeps the lock that it has.
        undecided = {target.name for target in project.profile.targets} - locked.decided
        removed = tuple(sorted(order.before.keys() - locked.kept - undecided))
        write(project.directory, locked, removed, disk)
    _show_locked(locked, dict(order.before), session, written=not flags.dry_run)
    # The others are locked and written; what is left is one failure, as if it had been the only target.
    for error in locked.failed.values():
        if not session.output.is_json:
            raise error
        # Its document is printed: what failed stands in it.
        session.output.say(f"error: {error.message}")
        return error.exit_code
    return 0


def _refuse_foreign_locks(project: Project, only: frozenset[str]) -> None:
    """Refuse to replace or delete a lock that another tool made and that no lock of torchenv's was."""
    from torchenv.lockfile.lockset import digest, is_own_lock, lock_file

    tied: dict[str, str] = {}
    # One that is damaged ties nothing, and is rebuilt.
    with suppress(InputError):
        found = project.lock_set
        tied = {target.name: target.lock for target in found.targets if target.lock} if found else {}
    wanted = {target.name for target in project.profile.targets}
    # What is locked again was tied already, whoever edited it since; only what is deleted must be the same.
    replaced = {name for name in wanted if not only or name in only} - tied.keys()
    for name in sorted(replaced | (tied.keys() - wanted)):
        held = project.content(lock_file(name))
        if held is None or is_own_lock(held) or digest(held) == tied.get(name):
            continue
        import shlex

        path = project.directory / lock_file(name)
        change = "replaced" if name in wanted else "deleted"
        moved = shlex.join(["mv", str(path), f"{path}.old"])
        other = ", or give the target another name" if name in wanted else ""
        raise InputError(
            f"`{path}` was not made by torchenv and would be {change}",
            hint=f"move it away with `{moved}`{other}",
        )


def _rewrite_to_mirror(project: Project, mirror_root: str, session: Session, *, written: bool) -> int:
    """Rewrite the locks there are to a mirror that has the same files."""
    from torchenv.actions.lock import Locked, write
    from torchenv.actions.sources import Mirror, at_mirror
    from torchenv.system.addresses import TorchIndex
    from torchenv.system.disk import Disk

    found, root = project.require_lock_set(), mirror_root.rstrip("/")

    def mirror_of(backend: str | None) -> Mirror:
        return Mirror(
            torch=TorchIndex(f"{root}/whl"),
            packages=f"{root}/simple",
            backend=backend or "",
            private=project.profile.index.private_urls,
        )

    before = {target.name: project.lock(target) for target in found.targets if target.lock}
    locks = {
        target.name: at_mirror(before[target.name], mirror_of(target.backend), session.fetch)
        for target in found.targets
        if target.name in before
    }
    targets = tuple(
        replace(target, lock=locks[target.name].digest) if target.name in locks else target
        for target in found.targets
    )
    locked = Locked(set=replace(found, targets=targets), locks=locks)
    if written:
        write(project.directory, locked, (), Disk())
    return _show_locked(locked, before, session, written=written)


def _show_locked(locked: Locked, before: dict[str, Lock], session: Session, *, written: bool) -> int:
    from torchenv.render.lock import describe_locked, encode_locked

    session.output.show(
        lambda: describe_locked(locked, before, written=written),
        lambda: encode_locked(locked, before, written=written),
    )
    return 0


def _order(
    project: Project, upgrade: list[str | bool], session: Session, *, builds: bool = True
) -> LockOrder:
    from packaging.utils import canonicalize_name

    from torchenv.actions.lock import LockOrder

    settings, output, named = session.settings, session.output, session.named_mirrors
    found = _find_lock_set(project, session)
    variables = {"TORCHENV_TORCH_INDEX": named.torch, "TORCHENV_PACKAGE_INDEX": named.packages}
    for name, value in variables.items():
        if value:
            advice = f"write it under [index] of {project.source}, so that whoever locks gets the same"
            output.note(f"{name} is set, and its addresses go into the lock files: {advice}")
    if settings.catalogue is not None and settings.named_catalogue is None:
        output.note(f"ignoring TORCHENV_CATALOGUE: only {OWN_CATALOGUE} of the project steers a lock")
    carried = {target.name: project.collect_carried(target) for target in project.profile.targets}
    _print_notes(carried, session)
    own = project.own_catalogue
    return LockOrder(
        profile=project.profile,
        wanted=project.wish,
        carried=carried,
        catalogue=project.catalogue,
        own_catalogue=own.name if own else None,
        torch_index=session.mirrors.torch,
        package_index=session.mirrors.packages,
        before=_read_locks(project, found),
        previous=found,
        same=found is not None and found.wanted == project.wish,
        upgrade=frozenset(canonicalize_name(name) for name in upgrade if isinstance(name, str)),
        upgrade_all=True in upgrade,
        builds=builds,
    )


def _print_notes(carried: Mapping[str, CarriedPackages], session: Session) -> None:
    """Print once what is ignored; raises `InputError` for what nobody else could install."""
    for note in dict.fromkeys(note for packages in carried.values() for note in packages.notes):
        if note.code == "local":
            hint = "publish it on an index, or list its folder under [packages] editable"
            raise InputError(note.message.partition(": install it")[0], hint=hint)
        session.output.note(note.message)


def _find_lock_set(project: Project, session: Session) -> LockSet | None:
    """Return what ties the locks there are; one that cannot be read is made again from them."""
    try:
        return project.lock_set
    except InputError as error:
        session.output.note(
            f"{error.message}: it is rebuilt from {project.source} and the locks, whose pins stay"
        )
        return None


def _read_locks(project: Project, found: LockSet | None) -> dict[str, Lock]:
    """Return the locks there are, however they came to be as they are: their pins stay where they fit."""
    names = dict.fromkeys(target.name for target in project.profile.targets)
    names |= dict.fromkeys(target.name for target in found.targets if target.lock) if found else {}
    locks = ((name, project.read_lock(name)) for name in names)
    return {name: held for name, held in locks if held is not None}


COMMANDS = {"lock": CommandSpec(declare_lock, reader(LockFlags), lock)}
