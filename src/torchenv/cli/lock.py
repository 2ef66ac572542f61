"""`torchenv lock`: one lock for each target of the project, made here for all of them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torchenv.cli.context import PROJECT_FILE, Context, read_text
from torchenv.cli.project import OWN_CATALOGUE, Project
from torchenv.errors import InputError
from torchenv.lockfile.lockset import FILE, Decided, LockSet

if TYPE_CHECKING:
    from torchenv.actions.lock import Locked, LockOrder
    from torchenv.lockfile.lock import Lock
    from torchenv.packages import CarriedPackages

FOUND_SOMETHING = 1


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="only say what has drifted; asks no network")
    how.add_argument(
        "--upgrade",
        metavar="PKG",
        nargs="?",
        const=True,
        action="append",
        help="let PKG, or all, become newer",
    )
    how.add_argument("--mirror", metavar="URL", help="rewrite all addresses to URL/whl and URL/simple")
    parser.add_argument("--dry-run", action="store_true", help="show what would change and write nothing")
    parser.add_argument(
        "--host",
        metavar="FILE",
        nargs="+",
        action="extend",
        help="add the target that the machine in FILE needs",
    )
    parser.add_argument(
        "--only-wheels", action="store_true", help="take wheels alone: build nothing from source"
    )
    parser.add_argument("--catalogue", metavar="FILE", help="a catalogue of your own, over the packaged one")
    parser.add_argument("--json", action="store_true", help="print what was found or done as JSON")


def run(arguments: Namespace, context: Context) -> int:
    """Check, rewrite to a mirror, or lock."""
    project = Project.of(context)
    _refuse_foreign_catalogue(project, arguments)
    if arguments.check:
        return _check(project, context)
    if arguments.mirror:
        return _rewrite_to_mirror(project, context)
    return _lock(_with_hosts(project, context), context)


def _refuse_foreign_catalogue(project: Project, arguments: Namespace) -> None:
    """A lock is made from what the project commits: another catalogue may only be looked through."""
    committed = project.directory / OWN_CATALOGUE
    if project.named in (None, committed) or arguments.check or arguments.dry_run:
        return
    hint = f"commit it as {committed}, or add --dry-run to see what it would decide"
    raise InputError(f"`{project.named}` is not a catalogue of this project", hint=hint)


def _check(project: Project, context: Context) -> int:
    found = project.lock_set
    nothing = [f"there is no {FILE}: nothing was locked yet"]
    drifted = nothing if found is None else _drift(found, project, context)
    if context.arguments.json:
        context.print_json({"schema": "torchenv.lock-check/1", "drift": drifted})
    else:
        context.out("\n".join(drifted) or "lock files are up to date")
    return FOUND_SOMETHING if drifted else 0


def _drift(found: LockSet, project: Project, context: Context) -> list[str]:
    from torchenv.lockfile.lockset import drift

    def now() -> dict[str, Decided]:
        from torchenv.actions.lock import decide_targets, decision

        return {name: decision(plan) for name, plan in decide_targets(_order(project, context)).items()}

    if project.wish != found.wanted:
        # What was locked was read then; what is new may be no profile at all, which is no drift.
        _ = project.profile
    return list(drift(found, project.wish, content=project.content, now=now))


def _with_hosts(project: Project, context: Context) -> Project:
    """Return the project with the targets that the named hosts need, written only with the locks."""
    files = context.arguments.host or ()
    if not files:
        return project
    from torchenv.actions.lock import add_targets
    from torchenv.plan.fleet import fleet
    from torchenv.plan.targets import wish_of

    profile = project.profile
    wish = wish_of(profile, torch_index=context.torch_index(profile))
    found = fleet(context.hosts(files), wish, project.catalogue)
    for member in found.unserved:
        context.say(f"note: no target serves {member.name}: {member.reason}")
    needed = found.list_missing_targets(profile)
    for target in needed:
        words = f"{target.platform}, Python {target.python}, {target.backend}"
        context.say(f"target {target.name} is added: {words}")
    return replace(project, text=add_targets(project.text, needed)) if needed else project


def _lock(project: Project, context: Context) -> int:
    from torchenv.actions.lock import lock, write
    from torchenv.render.lock import describe_locked, encode_locked
    from torchenv.system.disk import Disk

    order = _order(project, context)
    locked = lock(order, context.installer, context.say)
    for note in locked.notes():
        context.say(f"note: {note}")
    if not context.arguments.dry_run:
        disk = Disk()
        if project.text != read_text(project.directory / PROJECT_FILE, "the profile"):
            disk.put(project.directory / PROJECT_FILE, project.text)
        write(project.directory, locked, _find_removed(order, locked), disk)
    if context.arguments.json:
        context.print_json(encode_locked(locked, order.before, written=not context.arguments.dry_run))
    else:
        context.out(describe_locked(locked, order.before, written=not context.arguments.dry_run))
    return 0


def _find_removed(order: LockOrder, locked: Locked) -> tuple[str, ...]:
    return tuple(sorted(order.before.keys() - locked.locks.keys()))


def _rewrite_to_mirror(project: Project, context: Context) -> int:
    """Rewrite the locks there are to a mirror that has the same files."""
    from torchenv.actions.lock import Locked, write
    from torchenv.actions.sources import Mirror, at_mirror
    from torchenv.render.lock import describe_locked, encode_locked
    from torchenv.system.addresses import TorchIndex
    from torchenv.system.disk import Disk

    found, root = project.require_lock_set(), context.arguments.mirror.rstrip("/")
    before = {target.name: project.lock(target) for target in found.targets if target.lock}
    locks, targets = {}, []
    for target in found.targets:
        if target.lock is not None:
            mirror = Mirror(
                torch=TorchIndex(f"{root}/whl"), packages=f"{root}/simple", backend=target.backend or ""
            )
            lock = at_mirror(before[target.name], mirror, context.fetch)
            locks[target.name] = lock
            target = replace(target, lock=lock.digest)  # noqa: PLW2901
        targets.append(target)
    locked = Locked(set=replace(found, targets=tuple(targets)), locks=locks)
    written = not context.arguments.dry_run
    if written:
        write(project.directory, locked, (), Disk())
    if context.arguments.json:
        context.print_json(encode_locked(locked, before, written=written))
    else:
        context.out(describe_locked(locked, before, written=written))
    return 0


def _order(project: Project, context: Context) -> LockOrder:
    from packaging.utils import canonicalize_name

    from torchenv.actions.lock import LockOrder

    profile, found = project.profile, _find_lock_set(project, context)
    for name in ("TORCHENV_TORCH_INDEX", "TORCHENV_PACKAGE_INDEX"):
        if context.environ.get(name):
            said = "write it under [index] of torchenv.toml, so that whoever locks gets the same"
            context.say(f"note: {name} is set and its addresses are locked: {said}")
    if context.environ.get("TORCHENV_CATALOGUE"):
        context.say(f"note: ignoring TORCHENV_CATALOGUE: only {OWN_CATALOGUE} of the project steers a lock")
    carried = {target.name: project.collect_carried(target) for target in profile.targets}
    _print_notes(carried, context)
    given = context.arguments.upgrade or []
    own = project.own_catalogue
    return LockOrder(
        profile=profile,
        wanted=project.wish,
        carried=carried,
        catalogue=project.catalogue,
        own_catalogue=own.name if own else None,
        torch_index=context.torch_index(profile),
        package_index=context.package_index,
        before=_before(project, found),
        same=found is not None and found.wanted == project.wish,
        upgrade=frozenset(canonicalize_name(name) for name in given if name is not True),
        upgrade_all=True in given,
        builds=not context.arguments.dry_run,
    )


def _print_notes(carried: Mapping[str, CarriedPackages], context: Context) -> None:
    """Print once what is not obeyed; raises `InputError` for what nobody else could install."""
    for note in dict.fromkeys(note for packages in carried.values() for note in packages.notes):
        if note.code == "local":
            hint = "publish it on an index, or list its folder under [packages] editable"
            raise InputError(note.message.partition(": install it")[0], hint=hint)
        context.say(f"note: {note.message}")


def _find_lock_set(project: Project, context: Context) -> LockSet | None:
    """Return what ties the locks there are; one that cannot be read is made again from them."""
    try:
        return project.lock_set
    except InputError as error:
        context.say(
            f"note: {error.message}: it is rebuilt from {PROJECT_FILE} and the locks, whose pins stay"
        )
        return None


def _before(project: Project, found: LockSet | None) -> dict[str, Lock]:
    """Return the locks there are, however they came to be as they are: their pins stay where they fit."""
    names = dict.fromkeys(target.name for target in project.profile.targets)
    names |= dict.fromkeys(target.name for target in found.targets if target.lock) if found else {}
    locks = ((name, project.read_lock(name)) for name in names)
    return {name: lock for name, lock in locks if lock is not None}
