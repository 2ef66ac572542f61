"""`torchenv lock`: one lock for each target of the project, made here for all of them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchenv.cli.context import PROJECT_FILE, Context, read_text
from torchenv.cli.project import Project
from torchenv.errors import InputError
from torchenv.lockfile.lockset import FILE, Decided, LockSet

if TYPE_CHECKING:
    from torchenv.actions.lock import LockOrder
    from torchenv.lockfile.lock import Lock

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
    parser.add_argument("--catalogue", metavar="FILE", help="a catalogue of your own, over the packaged one")
    parser.add_argument("--json", action="store_true", help="print what was found or done as JSON")


def run(arguments: Namespace, context: Context) -> int:
    """Check, rewrite to a mirror, or lock."""
    project = Project.of(context)
    if arguments.check:
        return _check(project, context)
    if arguments.mirror:
        return _rewrite_to_mirror(project, context)
    return _lock(_with_hosts(project, context), context)


def _check(project: Project, context: Context) -> int:
    found = project.lock_set
    nothing = [f"there is no {FILE}: nothing was locked yet"]
    drifted = nothing if found is None else _drift(found, project, context)
    if context.arguments.json:
        context.print_json({"schema": "torchenv.lock-check/1", "drift": drifted})
    else:
        context.out("\n".join(drifted) or "the locks are what the profile and the catalogue give")
    return FOUND_SOMETHING if drifted else 0


def _drift(found: LockSet, project: Project, context: Context) -> list[str]:
    from torchenv.lockfile.lockset import drift

    def now() -> dict[str, Decided]:
        from torchenv.actions.lock import decide_targets, decision

        return {name: decision(plan) for name, plan in decide_targets(_order(project, context)).items()}

    if project.wish != found.wanted:
        # What was locked was read then; what is new may be no profile at all, which is no drift.
        _ = project.profile
    digest = context.catalogue_digest
    return list(drift(found, project.wish, catalogue=digest, content=project.content, now=now))


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
    found = fleet(context.hosts(files), wish, context.catalogue)
    for member in found.unserved:
        context.say(f"note: no target serves {member.name}: {member.reason}")
    needed = found.list_missing_targets(profile)
    for each in needed:
        context.say(f"target {each.name} is added: {each.platform}, Python {each.python}, {each.backend}")
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
        write(project.directory, locked, project.lock_set, disk)
    if context.arguments.json:
        context.print_json(encode_locked(locked, order.before, written=not context.arguments.dry_run))
    else:
        context.out(describe_locked(locked, order.before, written=not context.arguments.dry_run))
    return 0


def _rewrite_to_mirror(project: Project, context: Context) -> int:
    """Rewrite the locks there are to a mirror that has the same files."""
    from torchenv.actions.lock import Locked, write
    from torchenv.actions.sources import Mirror, at_mirror
    from torchenv.render.lock import describe_locked, encode_locked
    from torchenv.system.addresses import TorchIndex
    from torchenv.system.disk import Disk

    found, root = project.require_lock_set(), context.arguments.mirror.rstrip("/")
    before = {each.name: project.lock(each) for each in found.targets if each.lock}
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
        write(project.directory, locked, found, Disk())
    if context.arguments.json:
        context.print_json(encode_locked(locked, before, written=written))
    else:
        context.out(describe_locked(locked, before, written=written))
    return 0


def _order(project: Project, context: Context) -> LockOrder:
    from importlib.metadata import version

    from torchenv.actions.lock import LockOrder
    from torchenv.packages import of_profile

    def read(path: Path) -> str:
        return read_text(path, "the file")

    profile, catalogue = project.profile, context.catalogue
    for name in ("TORCHENV_TORCH_INDEX", "TORCHENV_PACKAGE_INDEX"):
        if context.environ.get(name):
            said = "write it under [index] of torchenv.toml, so that whoever locks gets the same"
            context.say(f"note: {name} is set and its addresses are locked: {said}")
    carried = of_profile(profile.packages, PROJECT_FILE, project.directory, read, catalogue)
    for note in carried.notes:
        context.say(f"note: {note.message}")
    given, found = context.arguments.upgrade or [], project.lock_set
    return LockOrder(
        profile=profile,
        wanted=project.wish,
        carried=carried,
        catalogue=catalogue,
        catalogue_digest=context.catalogue_digest,
        uv=version("uv"),
        torch_index=context.torch_index(profile),
        package_index=context.package_index,
        before=_before(project),
        same=bool(found and found.is_made_from(project.wish, context.catalogue_digest)),
        upgrade=None if True in given else frozenset(given),
    )


def _before(project: Project) -> dict[str, Lock]:
    """Return the locks there are; one that was changed by hand, or that is gone, is made anew."""
    found = project.lock_set
    targets = [each for each in found.targets if each.lock] if found else []
    locks = {}
    for target in targets:
        with suppress(InputError):
            locks[target.name] = project.lock(target)
    return locks
