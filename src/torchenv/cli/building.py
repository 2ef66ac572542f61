"""`init`, `probe`, `plan`, `create`: from what a machine has to a new environment beside the others."""

from __future__ import annotations

import itertools
import os
import shlex
from argparse import SUPPRESS, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchenv.cli.choice import Choice, add_choice, make_wish, read_choice, write_choice
from torchenv.cli.gather import (
    add_download,
    add_warnings,
    collect_packages,
    decide,
    find_active,
    find_minor,
    find_model,
    gather_known,
    may_ask_torch,
    probe_host,
    read_host,
    read_hosts,
)
from torchenv.cli.options import add_carrying, add_json
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.session import Session, read_text, write_text
from torchenv.cli.settings import PROJECT_FILE
from torchenv.errors import InputError, NothingSuits
from torchenv.plan import Outcome, Question, Wish
from torchenv.profile.model import Packages
from torchenv.system.names import refuse_place

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from torchenv.actions.create import CreateOrder
    from torchenv.environment.inspect import Installation
    from torchenv.host.model import Host, Problem
    from torchenv.packages import CarriedPackages
    from torchenv.plan import Build, Plan
    from torchenv.workspace.records import Environment


class InitFlags(NamedTuple):
    """What `init` takes."""

    template: str
    layout: str | None


def declare_init(parser: Parser) -> None:
    """Declare what `init` takes."""
    from torchenv.profile.packaged import list_profile_names

    known = ", ".join(list_profile_names())
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--from",
        metavar="FILE",
        dest="layout",
        help="Read a pyproject.toml, pixi.toml, environment.yml, requirements.txt or uv.lock",
    )
    begin.add_argument(
        "--profile",
        metavar="NAME",
        dest="template",
        default="default",
        help=f"Profile to begin with (default: default; {known})",
    )


def init(flags: InitFlags, session: Session) -> int:
    """Write the file, which must not be there yet."""
    from contextlib import suppress

    from torchenv.profile.packaged import read_packaged_profile

    path = (session.settings.project or session.settings.cwd) / PROJECT_FILE
    if os.path.lexists(path):
        raise _refuse_taken(path)
    if flags.layout is None:
        text, _ = read_packaged_profile(flags.template)
    else:
        text = _read_layout(flags.layout, path.parent, session)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _refuse_taken(path) from None
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    session.output.say(f"wrote {path}; see what it gives on this machine with `torchenv plan`")
    return 0


def _refuse_taken(path: Path) -> InputError:
    aside = next(
        aside
        for n in itertools.count(1)
        if not os.path.lexists(aside := path.with_name(f"{path.name}.old{n if n > 1 else ''}"))
    )
    move = shlex.join(["mv", str(path), str(aside)])
    hint = f"see what it gives with `torchenv plan`; for a new one, first put it aside with `{move}`"
    return InputError(f"`{path}` already exists", hint=hint)


def _read_layout(name: str, directory: Path, session: Session) -> str:
    """Return the profile that a layout of another tool asks for; what has no place in it is noted."""
    import os

    from torchenv.packages.layouts import read_layout
    from torchenv.profile.model import Profile
    from torchenv.render.profile import write_profile

    named = os.path.relpath(session.settings.cwd / name, directory).replace(os.sep, "/")
    found = read_layout(named, directory, lambda path: read_text(path, "the file"), session.catalogue)
    for left_out in found.left_out:
        session.output.note(f"left out: {left_out}")
    text = write_profile(found, named)
    Profile.from_toml(text, f"the profile made from {named}")
    return text


class ProbeFlags(NamedTuple):
    """What `probe` takes."""

    output: str | None
    sysroot: str | None
    reparse: str | None


def declare_probe(parser: Parser) -> None:
    """Declare what `probe` takes."""
    add_json(parser, "Print the torchenv.host/1 document")
    parser.add_argument("-o", "--output", metavar="FILE", help="Write the document to FILE")
    parser.add_argument(
        "--sysroot", metavar="DIR", help="Read DIR/proc, DIR/sys, … instead of this machine's"
    )
    parser.add_argument("--reparse", metavar="FILE", help="Parse the evidence of a host file again")


def probe(flags: ProbeFlags, session: Session) -> int:
    """Look, and print or write what was seen."""
    from torchenv.render.host import describe_host

    host = _look(flags, session)
    if flags.output:
        import json

        text = json.dumps(host.to_document(), indent=2) + "\n"
        mark = r'"schema":\s*"torchenv\.host/'
        write_text(session.settings.cwd / flags.output, text, mark=mark, other="-o host.json")
        session.output.say(f"wrote the host to {flags.output}")
    else:
        session.output.show(lambda: describe_host(host), host.to_document)
    return 0


def _look(flags: ProbeFlags, session: Session) -> Host:
    cwd = session.settings.cwd
    if flags.reparse:
        from torchenv.host.model import Host
        from torchenv.host.probe import reparse

        return reparse(Host.from_json(read_text(cwd / flags.reparse, "the host file"), flags.reparse))
    if flags.sysroot:
        sysroot = cwd / flags.sysroot
        if not os.path.isdir(sysroot):
            raise InputError(f"--sysroot `{flags.sysroot}` is not a directory")
        return probe_host(session, sysroot=sysroot)
    return probe_host(session)


class PlanFlags(NamedTuple):
    """What `plan` takes."""

    choice: Choice
    audit: tuple[str, ...]
    explain: bool


def declare_plan(parser: Parser) -> None:
    """Declare what `plan` takes."""
    add_choice(parser, hosts=True)
    # What was asked for by name once happens by itself now.
    parser.add_argument("--online", action="store_true", help=SUPPRESS)
    parser.add_argument("--explain", action="store_true", help="Show the rejected candidates, and why")
    parser.add_argument(
        "--audit",
        metavar="PATH",
        action="append",
        default=[],
        help="Include the findings of an audit of PATH in the advice",
    )
    add_json(parser, "Print the torchenv.plan/1 document")


def read_plan_flags(flags: Namespace, cwd: Path) -> PlanFlags:
    """Return the flags of `plan`."""
    return PlanFlags(read_choice(flags, cwd), tuple(flags.audit), flags.explain)


def plan(flags: PlanFlags, session: Session) -> int:
    """Plan and print; nothing is changed. The index is asked, unless it is for a host file or `--offline`."""
    choice = _take_version_from_hosts(flags.choice, session)
    asked = make_wish(choice, session)
    if len(choice.hosts) > 1:
        return _plan_fleet(choice.hosts, asked, session)
    if not choice.hosts:
        refuse_place(session.settings.root)
    host = _read_host(choice, session)
    carried = collect_packages((), None, session) if session.profile.packages != Packages() else None
    question = Question(
        host=host,
        wish=_add_companions(asked, carried, host) if carried else asked,
        catalogue=session.catalogue,
        known=gather_known(session, _count_findings(flags.audit, session)),
        active=find_active(session),
        is_elsewhere=bool(choice.hosts),
    )
    found = decide(question, session, is_plan=True)
    found = add_warnings(found, session)
    found = add_download(found, question.host, session, is_here=not choice.hosts)
    if session.output.is_json:
        session.output.print_document(found.to_document())
    else:
        from torchenv.render.plan import describe_plan

        program = ["torchenv"] if choice.hosts else session.settings.command
        following = shlex.join([*program, "create", *write_choice(choice, session)])
        session.output.print_text(
            describe_plan(found, following=following, explain=flags.explain, is_elsewhere=bool(choice.hosts))
        )
    if carried and found.build is not None:
        from torchenv.packages import refuse_conflicts

        # As `create` does before it builds.
        refuse_conflicts(
            carried, found.build.requirements, platform=host.platform, python=found.build.python.minor
        )
    return NothingSuits.exit_code if found.outcome is Outcome.BLOCKED else 0


def _read_host(choice: Choice, session: Session) -> Host:
    host = read_host(choice.hosts, session, python=choice.python, asks_torch=choice.ask_torch)
    # What a person says of the card, or of the build, needs no asking.
    is_settled = choice.hosts or choice.ask_torch or choice.capability or choice.backends
    if is_settled or choice.devices == () or not may_ask_torch(host, session):
        return host
    from torchenv.host.probe.ask_torch import ask_torch

    return ask_torch(host, session.programs)


def _take_version_from_hosts(choice: Choice, session: Session) -> Choice:
    # plan --host a.json b.json 2.15
    if choice.version is None and len(choice.hosts) > 1:
        *hosts, last = choice.hosts
        if not last.endswith(".json") and not os.path.exists(session.settings.cwd / last):
            return choice._replace(version=last, hosts=tuple(hosts))
    return choice


def _plan_fleet(hosts: tuple[str, ...], asked: Wish, session: Session) -> int:
    """Plan for several machines at once; their own interpreters are the ones that are taken."""
    from torchenv.plan.fleet import fleet
    from torchenv.render.fleet import describe_fleet

    found = fleet(read_hosts(hosts, session), asked, session.catalogue)
    session.output.show(lambda: describe_fleet(found), found.to_document)
    return NothingSuits.exit_code if found.unserved else 0


def _count_findings(paths: tuple[str, ...], session: Session) -> Counter[str]:
    """Count what an audit of the paths finds, by severity."""
    from collections import Counter

    if not paths:
        return Counter()
    from torchenv.cli.gather import audit_paths

    return Counter(str(finding.severity) for finding in audit_paths(paths, session).findings)


class CreateFlags(NamedTuple):
    """What `create` takes; as a step of an upgrade it neither advises nor activates the first environment."""

    choice: Choice
    like: str | None
    files: tuple[str, ...]
    use: bool
    dry_run: bool
    explain: bool = False
    name: str | None = None
    again: bool = False
    is_step: bool = False


def declare_create(parser: Parser) -> None:
    """Declare what `create` takes."""
    add_choice(parser)
    add_carrying(parser)
    parser.add_argument(
        "--name", metavar="N", help="Name of the new environment (default: version, backend and Python)"
    )
    parser.add_argument("--use", action="store_true", help="Switch to the new environment at the end")
    parser.add_argument(
        "--again", action="store_true", help="Make another one even if an environment has it already"
    )
    parser.add_argument("--dry-run", action="store_true", help="Show the plan and stop")
    parser.add_argument("--explain", action="store_true", help="Show the rejected candidates, and why")
    add_json(parser, "Print what `torchenv show --json` prints of the new environment")


def read_create_flags(flags: Namespace, cwd: Path) -> CreateFlags:
    """Return the flags of `create`."""
    choice = read_choice(flags, cwd)
    return CreateFlags(
        choice,
        flags.like,
        tuple(flags.files),
        use=flags.use,
        dry_run=flags.dry_run,
        explain=flags.explain,
        name=flags.name,
        again=flags.again,
    )


def create(flags: CreateFlags, session: Session) -> int:
    """Gather, decide, apply, report."""
    from torchenv.actions.create import refuse_name
    from torchenv.render.plan import describe_advice, describe_decision, describe_refusal

    output, choice = session.output, flags.choice
    if not (flags.dry_run and choice.hosts):
        refuse_place(session.settings.root)
    refuse_name(flags.name, session.store.read())
    host = _read_host(choice, session) if flags.dry_run else _read_buildable_host(choice, session)
    model = find_model(flags.like, session)
    carried = collect_packages(flags.files, model, session)
    question = Question(
        host=host,
        wish=_add_companions(make_wish(choice, session), carried, host),
        catalogue=session.catalogue,
        known=gather_known(session),
        active=find_active(session),
        like=find_minor(model),
        is_elsewhere=flags.dry_run and bool(choice.hosts),
    )
    # Only what is really built asks the index of today, for another host too.
    found = decide(question, session, is_plan=flags.dry_run)
    if found.build is not None and choice.hosts and not flags.dry_run:
        # The devices of another machine are not here to compute on.
        found = replace(found, build=replace(found.build, unproven=True))
    found = add_download(add_warnings(found, session), question.host, session)
    output.say(
        describe_decision(found, explain=flags.explain)
        if found.build
        else describe_refusal(found, explain=flags.explain)
    )
    if session.profile.checkpoints.distributed and found.build is not None and not flags.is_step:
        output.say(describe_advice(found))
    if output.is_json and (flags.dry_run or found.build is None):
        output.print_document(found.to_document())
    if found.build is None:
        raise NothingSuits(f"nothing was made: {'; '.join(found.why)}", hint=found.hint)
    carried = fit_packages(carried, model, found.build, host, session)
    for note in (*(note.message for note in carried.notes), *map(str, carried.cannot_follow)):
        output.note(note)
    around = _note_obstacles(found, found.build, session)
    if flags.dry_run:
        return 0
    from torchenv.actions.create import CreateOrder

    order = CreateOrder(
        plan=found,
        host=question.host,
        profile=session.profile,
        catalogue=session.catalogue,
        carried=carried,
        companions=question.wish.packages,
        by_hand=question.wish.by_hand,
        package_index=session.mirrors.packages,
        ignored=session.inherited.ignored,
        around=around,
        name=flags.name,
        again=flags.again,
    )
    return _make(order, flags, session)


def _read_buildable_host(choice: Choice, session: Session) -> Host:
    """Return the machine that is planned for, with the interpreters of the one that builds."""
    host = _read_host(choice, session)
    if not choice.hosts:
        return host
    here, named = probe_host(session, python=choice.python), choice.hosts[0]
    if host.platform != here.platform:
        raise InputError(
            f"{named} describes {host.platform}, and this machine is {here.platform}",
            hint=f"look at the plan for it with `torchenv plan --host {named}`, and create it there",
        )
    return replace(host, pythons=here.pythons, environments=here.environments)


def _add_companions(wish: Wish, carried: CarriedPackages, host: Host) -> Wish:
    """Ask the plan for the companions, too, that what is carried over names."""
    from torchenv.packages import companions

    more = companions(carried, host.platform)
    return replace(wish, packages=tuple(dict.fromkeys((*wish.packages, *more))))


def fit_packages(
    carried: CarriedPackages, model: Installation | None, build: Build, host: Host, session: Session
) -> CarriedPackages:
    """Find before anything is built what cannot be carried over, and refuse what contradicts the plan."""
    from torchenv.actions.carry import list_bound_to_old_torch
    from torchenv.packages import refuse_conflicts

    platform = host.platform
    refuse_conflicts(carried, build.requirements, platform=platform, python=build.python.minor)
    if model is not None:
        from torchenv.installers.uv import default_index, uv_program

        asked = session.mirrors.packages or default_index(session.programs, uv_program())
        carried = list_bound_to_old_torch(
            carried,
            model,
            build,
            platform=platform,
            index=None if session.settings.is_offline else asked,
            fetch=session.fetch,
        )
    return carried


def _note_obstacles(found: Plan, build: Build, session: Session) -> tuple[Problem, ...]:
    """Print what forbids the plan or would undo it, which is worth knowing before anything is made."""
    from torchenv.actions.causes.surroundings import find_surroundings

    _note_noexec(session)
    for constraint in session.inherited.forbidding(build.requirements):
        session.output.note(f"ignored, though it forbids what is planned: {constraint}")
    settings = session.settings
    around = find_surroundings(settings.environ, settings.project, torch=build.torch)
    known = {warning.code for warning in found.warnings}
    for problem in around:
        if problem.code not in known:
            session.output.note(problem.message)
    return around


def _note_noexec(session: Session) -> None:
    """Refuse a workspace that no program can be started from, and say what else will fail for that."""
    import tempfile
    from pathlib import Path

    from torchenv.actions.room import list_noexec, refuse_noexec
    from torchenv.installers.cache import locate_cache

    settings = session.settings
    refuse_noexec(session.store.environments)
    cache = locate_cache(settings.environ, settings.home, settings.system)
    temporary = Path(settings.environ.get("TMPDIR") or tempfile.gettempdir())
    for note in list_noexec(cache.path if cache else None, temporary):
        session.output.note(note)


def _make(order: CreateOrder, flags: CreateFlags, session: Session) -> int:
    from torchenv.actions.create import create as build_environment
    from torchenv.render.environment import describe_made, encode_environment

    settings, output = session.settings, session.output
    made = build_environment(order, session.make_ports())
    is_first = not flags.is_step and session.store.read().current is None
    switches = flags.use or (is_first and not session.profile.smoke.required)
    said = describe_made(made, order, program=settings.program, is_last=not switches)
    if output.is_json:
        output.say(said)
        output.print_document(encode_environment(made.environment, session.store))
    else:
        output.report(said)
    if switches:
        _switch_to(made.environment, session)
    elif is_first:
        number = made.environment.number
        smoke, use = (f"`{settings.program} {word} {number}`" for word in ("smoke", "use"))
        output.note(f"not active yet: the profile requires its smoke commands; run {smoke}, then {use}")
    return 0


def _switch_to(environment: Environment, session: Session) -> None:
    from torchenv.actions.switch import use
    from torchenv.render.switch import describe_switch

    proof = session.profile.smoke
    switched = use(str(environment.number), session.store, session.outside, why="create", proof=proof)
    # With --json the document on stdout is what was made.
    say = session.output.say if session.output.is_json else session.output.report
    say(describe_switch(switched, program=session.settings.program))


COMMANDS = {
    "init": CommandSpec(declare_init, reader(InitFlags), init),
    "probe": CommandSpec(declare_probe, reader(ProbeFlags), probe),
    "plan": CommandSpec(declare_plan, read_plan_flags, plan),
    "create": CommandSpec(declare_create, read_create_flags, create),
}
