"""`torchenv sync`: build the environment that was locked for a machine like this."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from torchenv.cli.context import Context
from torchenv.cli.project import Project
from torchenv.errors import InputError
from torchenv.lockfile.lockset import LockSet

if TYPE_CHECKING:
    from torchenv.actions.create import CreateOutcome
    from torchenv.actions.ports import Ports
    from torchenv.lockfile.lock import Lock
    from torchenv.lockfile.lockset import LockedTarget
    from torchenv.plan.targets import Fit
    from torchenv.workspace.records import Environment

INSTALLERS = ("uv", "pip")

NOTHING_SUITS = 3


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("target", nargs="?", help="take this target; else the one that suits this machine")
    parser.add_argument("--use", action="store_true", help="switch to the environment at the end")
    parser.add_argument("--offline", action="store_true", help="use no network")
    parser.add_argument("--wheels", metavar="DIR", help="take all files from DIR, where `fetch` brought them")
    parser.add_argument("--installer", choices=INSTALLERS, help="what installs the packages")
    parser.add_argument(
        "--host",
        metavar="FILE",
        nargs="+",
        action="extend",
        help="only say which target the machine in each FILE would take",
    )
    parser.add_argument("--dry-run", action="store_true", help="stop after the decision")
    parser.add_argument("--catalogue", metavar="FILE", help="a catalogue of your own, over the packaged one")
    parser.add_argument("--json", action="store_true", help="print what `torchenv show --json` would")


def run(arguments: Namespace, context: Context) -> int:
    """Choose the target for this machine, look whether it is built already; else build and prove it."""
    from torchenv.actions.built import find_built

    project = Project.of(context)
    locked = project.require_lock_set()
    _note_drift(locked, project, context)
    if arguments.host:
        return _tell_of_hosts(locked, project, context)
    fit = _choose_target(locked, project, context)
    # Read first: a lock that was changed since builds nothing, whatever stands already.
    lock = project.lock(fit.target)
    environment = find_built({lock.digest}, context.store.read(), context.store)
    if environment is None:
        ports = _ports(lock, fit.target, context)
        if not arguments.dry_run:
            made = _build(fit, lock, project, ports, context)
            return _finish(made.environment, context, made=made.new)
    if arguments.dry_run:
        return _describe_dry_run(fit, environment, context)
    assert environment is not None
    return _finish(environment, context, made=False)


def _describe_dry_run(fit: Fit, environment: Environment | None, context: Context) -> int:
    target = fit.target
    if context.arguments.json:
        number = environment and environment.number
        context.print_json({**fit.plan.to_document(), "target": target.name, "number": number})
    elif environment is None:
        context.out(f"target {target} would be built from {target.file}")
    else:
        context.out(f"target {target} is built already: environment {environment}")
    return 0


def _note_drift(locked: LockSet, project: Project, context: Context) -> None:
    # What was locked is built all the same, even where a file that the profile names is not at hand.
    with suppress(InputError):
        if locked.wanted != project.wish:
            said = "the profile is no longer what was locked, and the locks are built as they are"
            context.say(f"note: {said}: `torchenv lock --check` says what has changed")


def _tell_of_hosts(locked: LockSet, project: Project, context: Context) -> int:
    """Print which target each of the named machines would take; nothing is built."""
    from torchenv.actions.sync import choose_for_hosts
    from torchenv.plan import Question
    from torchenv.plan.targets import wish_of
    from torchenv.render.sync import describe_nodes, encode_nodes

    hosts = context.hosts(context.arguments.host)
    torch_index = context.torch_index(project.profile)
    wish = wish_of(project.profile, torch_index=torch_index)
    ask = Question(host=next(iter(hosts.values())), wish=wish, catalogue=project.catalogue)
    nodes = choose_for_hosts(locked, ask, hosts, context.arguments.target, torch_index=torch_index)
    if context.arguments.json:
        context.print_json(encode_nodes(nodes))
    else:
        context.out(describe_nodes(nodes))
    return NOTHING_SUITS if any(node.fit is None for node in nodes) else 0


def _choose_target(locked: LockSet, project: Project, context: Context) -> Fit:
    from torchenv.actions.sync import choose_target
    from torchenv.plan import Question
    from torchenv.plan.targets import wish_of

    profile = project.profile
    torch_index = context.torch_index(profile)
    wish = replace(wish_of(profile, torch_index=torch_index), offline=context.arguments.offline)
    ask = Question(host=context.host, wish=wish, catalogue=project.catalogue)
    return choose_target(locked, ask, context.arguments.target, torch_index=torch_index)


def _build(fit: Fit, lock: Lock, project: Project, ports: Ports, context: Context) -> CreateOutcome:
    from torchenv.actions.create import CreateOrder, create
    from torchenv.render.environment import describe_made

    context.say(f"target {fit.target}")
    family = project.catalogue.family & lock.versions.keys()
    order = CreateOrder(
        plan=fit.plan,
        host=context.host,
        profile=project.profile,
        catalogue=project.catalogue,
        companions=tuple(sorted(family - {"torch"})),
        local=tuple(
            replace(folder, path=str((project.directory / folder.path).resolve())) for folder in lock.local
        ),
        package_index=context.package_index,
        by_hand=context.arguments.target is not None,
        lock=lock,
        ignored=context.other_settings.ignored,
    )
    made = create(order, ports)
    if made.new:
        context.say(describe_made(made, order, program=context.program))
    return made


def _ports(lock: Lock, target: LockedTarget, context: Context) -> Ports:
    """Return the ports, with an installer that takes the files from where the user says they are."""
    from torchenv.actions.sources import Mirror, at_mirror, from_directory, refuse_vanished
    from torchenv.index.mirrors import Mirrors
    from torchenv.installers.moved import RelocatedInstaller

    ports = context.ports
    if context.arguments.wheels is not None:
        elsewhere = from_directory(lock, context.cwd / context.arguments.wheels)
        return replace(ports, installer=RelocatedInstaller(ports.installer, lambda _: elsewhere))
    if context.arguments.offline:
        return ports
    # The profile's mirrors are in the lock already.
    named = Mirrors.of(context.environ)
    if named.torch or named.packages:
        mirror = Mirror(torch=named.torch, packages=named.packages, backend=target.backend or "")
        elsewhere = at_mirror(lock, mirror, context.fetch)
        return replace(ports, installer=RelocatedInstaller(ports.installer, lambda _: elsewhere))
    refuse_vanished(lock, context.fetch, context.say)
    return ports


def _use(environment: Environment, context: Context) -> bool:
    from torchenv.actions.switch import use
    from torchenv.render.switch import describe_switch

    proof = context.profile.smoke.required
    switched = use(str(environment.number), context.store, context.outside, why="sync", proof=proof)
    if switched.has_moved:
        context.say(describe_switch(switched, program=context.program))
    return switched.has_moved


def _finish(environment: Environment, context: Context, *, made: bool) -> int:
    if not made:
        context.say(f"environment {environment} equals its lock: nothing was made")
    switched = context.arguments.use and _use(environment, context)
    if context.arguments.json:
        from torchenv.render.environment import encode_environment

        context.print_json(
            {**encode_environment(environment, context.store), "made": made, "switched": switched}
        )
    else:
        context.out(str(environment.number))
    return 0
