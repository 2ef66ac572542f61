"""`sync`, `fetch`, `export`: what a team locked once, on each of its machines."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from torchenv.cli.gather import read_host, read_hosts
from torchenv.cli.options import (
    add_catalogue,
    add_hosts,
    add_installer,
    add_json,
    add_offline,
    add_profile,
)
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.project import Project
from torchenv.cli.session import Session, write_text
from torchenv.errors import InputError, ToolFailed
from torchenv.lockfile.lockset import LockSet

if TYPE_CHECKING:
    from torchenv.actions.create import CreateOutcome
    from torchenv.actions.ports import Ports
    from torchenv.lockfile.lock import Lock
    from torchenv.lockfile.lockset import LockedTarget
    from torchenv.plan.targets import Fit
    from torchenv.workspace.records import Environment

NOTHING_SUITS = 3


class SyncFlags(NamedTuple):
    """What `sync` takes."""

    target: str | None
    use: bool
    wheels: str | None
    host: list[str]
    dry_run: bool


def declare_sync(parser: Parser) -> None:
    """Declare what `sync` takes."""
    parser.add_argument("target", nargs="?", help="Target to build (default: the one for this machine)")
    parser.add_argument("--use", action="store_true", help="Switch to the environment at the end")
    add_offline(parser)
    parser.add_argument(
        "--wheels", metavar="DIR", help="Take all files from DIR, where `torchenv fetch` put them"
    )
    add_installer(parser)
    add_hosts(parser, "Only show which target the machine in each FILE would take")
    parser.add_argument("--dry-run", action="store_true", help="Show the plan and stop")
    add_profile(parser, "Profile that was locked (default: torchenv.toml)")
    add_catalogue(parser)
    add_json(parser, "Print what `torchenv show --json` prints of the environment")


def sync(flags: SyncFlags, session: Session) -> int:
    """Choose the target for this machine, look whether it is built already; else build and prove it."""
    from torchenv.actions.built import find_built, refuse_changed_lock

    project = Project.of(session)
    locked = project.require_lock_set()
    _note_drift(locked, project, session)
    if flags.host:
        return _tell_of_hosts(locked, project, flags, session)
    fit = _choose_target(locked, project, flags, session)
    # Proven first: a lock that was changed since builds nothing, whatever stands already.
    project.proven(fit.target)
    digest = fit.target.lock or ""
    environment = find_built({digest}, session.store.read(), session.store)
    if environment is not None:
        refuse_changed_lock(environment, session.store, project.directory / fit.target.file)
    else:
        found = project.lock(fit.target)
        ports = _make_ports(found, fit.target, flags, session)
        if not flags.dry_run:
            made = _build(fit, found, project, ports, flags=flags, session=session)
            return _finish(made.environment, flags, session, made=made.new)
    if flags.dry_run:
        return _describe_dry_run(fit, environment, flags, session)
    assert environment is not None
    return _finish(environment, flags, session, made=False)


def _describe_dry_run(fit: Fit, environment: Environment | None, flags: SyncFlags, session: Session) -> int:
    target = fit.target
    current = session.store.read().current
    switches = flags.use and (environment is None or environment.number != current)
    built = (
        f"target {target} would be built from {target.file}"
        if environment is None
        else f"target {target} is already built: environment {environment}"
    )
    session.output.show(
        lambda: built,
        lambda: {
            **fit.plan.to_document(),
            "target": target.name,
            "number": environment and environment.number,
            "made": environment is None,
            "switched": switches,
        },
    )
    return 0


def _note_drift(locked: LockSet, project: Project, session: Session) -> None:
    # What was locked is built all the same, even where a file that the profile names is not at hand.
    with suppress(InputError):
        if locked.wanted != project.wish:
            changed = "the profile has changed since it was locked; the lock files are used as they are"
            session.output.note(f"{changed}: see what changed with `torchenv lock --check`")


def _tell_of_hosts(locked: LockSet, project: Project, flags: SyncFlags, session: Session) -> int:
    """Print which target each of the named machines would take; nothing is built."""
    from torchenv.actions.sync import choose_for_hosts
    from torchenv.plan import Question
    from torchenv.plan.targets import wish_of
    from torchenv.render.sync import describe_nodes, encode_nodes

    hosts, torch_index = read_hosts(flags.host, session), session.mirrors.torch
    wish = wish_of(project.profile, torch_index=torch_index)
    question = Question(host=next(iter(hosts.values())), wish=wish, catalogue=project.catalogue)
    nodes = choose_for_hosts(locked, question, hosts, flags.target, torch_index=torch_index)
    session.output.show(lambda: describe_nodes(nodes), lambda: encode_nodes(nodes))
    return NOTHING_SUITS if any(node.fit is None for node in nodes) else 0


def _choose_target(locked: LockSet, project: Project, flags: SyncFlags, session: Session) -> Fit:
    from torchenv.actions.sync import choose_target
    from torchenv.plan import Question
    from torchenv.plan.targets import wish_of

    torch_index = session.mirrors.torch
    wish = replace(wish_of(project.profile, torch_index=torch_index), offline=session.settings.is_offline)
    host = read_host((), session, asks_torch=not flags.dry_run)
    question = Question(host=host, wish=wish, catalogue=project.catalogue)
    return choose_target(locked, question, flags.target, torch_index=torch_index)


def _build(
    fit: Fit, found: Lock, project: Project, ports: Ports, *, flags: SyncFlags, session: Session
) -> CreateOutcome:
    from torchenv.actions.create import CreateOrder, create
    from torchenv.render.environment import describe_made

    session.output.say(f"target {fit.target}")
    family = project.catalogue.family & found.versions.keys()
    order = CreateOrder(
        plan=fit.plan,
        host=read_host((), session),
        profile=project.profile,
        catalogue=project.catalogue,
        companions=tuple(sorted(family - {"torch"})),
        local=tuple(
            replace(folder, path=str((project.profile_directory / folder.path).resolve()))
            for folder in found.local
        ),
        package_index=session.mirrors.packages,
        by_hand=flags.target is not None,
        lock=found,
        ignored=session.inherited.ignored,
    )
    try:
        made = create(order, ports)
    except ToolFailed:
        _explain_vanished(found, flags, session)
        raise
    if made.new:
        session.output.say(describe_made(made, order, program=session.settings.program))
    return made


def _explain_vanished(found: Lock, flags: SyncFlags, session: Session) -> None:
    """Raise what the indexes say of files that could not be installed, where that is what went wrong."""
    from torchenv.actions.sources import refuse_vanished
    from torchenv.errors import IndexUnreachable

    if flags.wheels is None and not session.settings.is_offline:
        with suppress(IndexUnreachable):
            refuse_vanished(found, session.fetch, session.output.say)


def _make_ports(found: Lock, target: LockedTarget, flags: SyncFlags, session: Session) -> Ports:
    """Return the ports, with an installer that takes the files from where the user says they are."""
    from torchenv.actions.sources import from_directory, refuse_vanished
    from torchenv.installers.moved import RelocatedInstaller

    settings = session.settings
    ports = session.make_ports(has_wheels=flags.wheels is not None)
    if flags.wheels is not None:
        elsewhere = from_directory(found, settings.cwd / flags.wheels, target.name)
        return replace(ports, installer=RelocatedInstaller(ports.installer, lambda _: elsewhere))
    if settings.is_offline:
        return ports
    mirrored = find_at_set_mirror(found, target, session)
    if mirrored is not found:
        return replace(ports, installer=RelocatedInstaller(ports.installer, lambda _: mirrored))
    if flags.dry_run:
        # The build itself finds out, and needs no page of an index for what the lock says.
        refuse_vanished(found, session.fetch, session.output.say)
    return ports


def find_at_set_mirror(found: Lock, target: LockedTarget, session: Session) -> Lock:
    """Return a lock with the addresses of the mirrors that variables name; itself where none is set."""
    from torchenv.actions.sources import Mirror, at_mirror

    # The profile's mirrors are in the lock already.
    named = session.named_mirrors
    if not named.torch and not named.packages:
        return found
    mirror = Mirror(
        torch=named.torch,
        packages=named.packages,
        backend=target.backend or "",
        private=session.profile.index.private_urls,
    )
    return at_mirror(found, mirror, session.fetch)


def _finish(environment: Environment, flags: SyncFlags, session: Session, *, made: bool) -> int:
    if not made:
        session.output.say(f"environment {environment} is up to date with its lock file: nothing to do")
    switched = flags.use and _switch_to(environment, session)
    if session.output.is_json:
        from torchenv.render.environment import encode_environment

        session.output.print_document(
            {**encode_environment(environment, session.store), "made": made, "switched": switched}
        )
    else:
        session.output.print(str(environment.number))
    return 0


def _switch_to(environment: Environment, session: Session) -> bool:
    from torchenv.actions.switch import use
    from torchenv.render.switch import describe_switch

    proof = session.profile.smoke
    switched = use(str(environment.number), session.store, session.outside, why="sync", proof=proof)
    if switched.has_moved:
        session.output.say(describe_switch(switched, program=session.settings.program))
    return switched.has_moved


class FetchFlags(NamedTuple):
    """What `fetch` takes."""

    target: str
    directory: str


def declare_fetch(parser: Parser) -> None:
    """Declare what `fetch` takes."""
    parser.add_argument("target", metavar="TARGET", help="Target whose files are fetched")
    parser.add_argument("directory", metavar="DIR", help="Directory to put them in")


def fetch(flags: FetchFlags, session: Session) -> int:
    """Fetch them, each proven by its hash."""
    from torchenv.actions.sources import bring, count_brought

    project = Project.of(session)
    target = project.require_lock_set().target(flags.target)
    directory = session.settings.cwd / flags.directory
    locked = find_at_set_mirror(project.lock(target), target, session)
    python, platform = target.python, target.platform
    say, download = session.output.say, session.network.download

    def count() -> tuple[int, int]:
        return count_brought(locked, directory, python=python, platform=platform)

    with session.output.follow("downloading", count):
        files = bring(locked, directory, download, say, python=python, platform=platform)
    session.output.say(f"{len(files)} files of target {target} are in {directory}")
    session.output.say(
        f"next, on the machine without a network: torchenv sync {target.name} --offline --wheels {directory}"
    )
    return 0


class ExportFlags(NamedTuple):
    """What `export` takes."""

    dockerfile: str | None
    requirements: str | None
    uv: bool
    base: str | None
    output: str | None


def declare_export(parser: Parser) -> None:
    """Declare what `export` takes."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--dockerfile", metavar="TARGET", help="Write a Dockerfile that builds TARGET")
    what.add_argument("--requirements", metavar="TARGET", help="Write requirements with hashes for TARGET")
    what.add_argument(
        "--uv", action="store_true", help="Write uv's sources, indexes and conflicts for all targets"
    )
    parser.add_argument(
        "--base",
        metavar="IMAGE",
        help="With --dockerfile: build on IMAGE, such as python:3.12-slim@sha256:… (default: Python's own)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="Write to FILE (default: print it)")


def export(flags: ExportFlags, session: Session) -> int:
    """Write what another tool reads in place of the locks."""
    project = Project.of(session)
    locked = project.require_lock_set()
    if flags.uv:
        from torchenv.render.export import export_uv

        locks = {target: project.lock(target) for target in locked.targets if target.lock}
        text = export_uv(locks, project.catalogue.family)
        return _write_export(text, "copy it into pyproject.toml", flags, session)
    target = locked.target(flags.requirements or flags.dockerfile or "")
    if flags.requirements:
        from torchenv.render.export import export_requirements

        then = "install it with `pip install --no-deps --require-hashes -r FILE`"
        return _write_export(export_requirements(target, project.lock(target)), then, flags, session)
    from torchenv.render.dockerfile import dockerfile

    text = dockerfile(
        target,
        project.lock(target),
        family=project.catalogue.family,
        uv=lambda: _require_uv(target, session),
        base=flags.base,
        package_index=session.mirrors.packages,
    )
    return _write_export(text, f"build it in {project.directory}, where {target.file} is", flags, session)


def _require_uv(target: LockedTarget, session: Session) -> str:
    """Return the requirement of the uv that locked, with the hashes of its files for a target."""
    from importlib.metadata import version

    from torchenv.actions.sources import list_digests
    from torchenv.installers.uv import default_index, uv_program

    index = session.mirrors.packages or default_index(session.programs, uv_program()) or ""
    uv = version("uv")
    minor = target.python.rstrip("t")
    digests = list_digests(index, "uv", uv, session.fetch, python=minor, platform=target.platform)
    return " ".join([f"uv=={uv}", *(f"--hash=sha256:{digest}" for digest in digests)])


def _write_export(text: str, then: str, flags: ExportFlags, session: Session) -> int:
    if flags.output is None:
        session.output.print(text.rstrip("\n"))
        return 0
    path = session.settings.cwd / flags.output
    mark = r"\A(# .*\n)?# Made (from .* )?by `torchenv export |\A(# .*\n){2,5}# .*: torchenv adopt "
    name = "torch.toml" if flags.uv else "requirements.txt" if flags.requirements else "Dockerfile"
    write_text(path, text, mark=mark, other=f"-o {name}")
    session.output.say(f"wrote {path}; {then}")
    return 0


COMMANDS = {
    "sync": CommandSpec(declare_sync, reader(SyncFlags), sync),
    "fetch": CommandSpec(declare_fetch, reader(FetchFlags), fetch),
    "export": CommandSpec(declare_export, reader(ExportFlags), export),
}
