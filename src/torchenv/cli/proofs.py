"""`doctor`, `verify`, `smoke`, `evaluate`: what shows that an environment is as it should be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchenv.cli.gather import find_environment, find_working_directory, read_host
from torchenv.cli.options import add_environment, add_json, add_profile
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.session import Session, read_text
from torchenv.errors import InputError
from torchenv.workspace.records import Environment

if TYPE_CHECKING:
    from torchenv.host.model import Host

FOUND_SOMETHING = 1


class DoctorFlags(NamedTuple):
    """What `doctor` takes."""

    environment: str | None


def declare_doctor(parser: Parser) -> None:
    """Declare what `doctor` takes."""
    parser.add_argument(
        "environment",
        nargs="?",
        metavar="ENV|PATH",
        help="Environment of this workspace, or any on disk (default: the active one)",
    )
    add_json(parser, "Print the torchenv.doctor/1 document")


def doctor(flags: DoctorFlags, session: Session) -> int:
    """Look at any environment, and print every finding with its cure."""
    from torchenv.actions.doctor import diagnose
    from torchenv.render.doctor import describe_diagnosis, encode_diagnosis

    host = read_host((), session)
    path = _find_patient(flags.environment, host, session)
    session.output.say(f"importing torch in {path}")
    diagnosis = diagnose(path, host, session.catalogue, session.settings.environ, session.programs)
    session.output.show(lambda: describe_diagnosis(diagnosis), lambda: encode_diagnosis(diagnosis))
    return 0 if diagnosis.is_well else FOUND_SOMETHING


def _find_patient(named: str | None, host: Host, session: Session) -> Path:
    """Return where the environment is that is meant; one of the workspace goes before a path of that name.

    Raises `WorkspaceError` for one in a workspace that the user has not accepted: its Python is started.
    """
    from torchenv.errors import TorchenvError

    if named is not None:
        path = session.settings.cwd / named
        try:
            recorded = Path(session.store.read().find(named).path)
        except TorchenvError:
            if not os.path.exists(path):
                raise
            if path.resolve().is_relative_to(session.settings.root.resolve()):
                session.refuse_suspicious()
            return path
        session.refuse_suspicious()
        return recorded
    session.refuse_suspicious()
    if (active := session.store.read().active) is not None:
        return Path(active.path)
    if (found := _find_outside(host)) is None:
        hint = "name the directory of one, or make one with `torchenv create`"
        raise InputError("no active environment, and this project has no `.venv`", hint=hint)
    return found


def _find_outside(host: Host) -> Path | None:
    """Return the environment of the shell, else that of the project, but not the one that holds torchenv."""
    import sys

    own = Path(sys.prefix).resolve()
    for seen in sorted(host.environments, key=lambda seen: (not seen.active, not seen.was_found)):
        is_own = Path(seen.path).resolve() == own and seen.torch is None
        if (seen.active or seen.was_found) and not is_own:
            return Path(seen.path)
    return None


class VerifyFlags(NamedTuple):
    """What `verify` takes."""

    environment: str | None


def declare_verify(parser: Parser) -> None:
    """Declare what `verify` takes."""
    add_environment(parser)
    add_json(parser, "Print the torchenv.verify/1 document")


def verify(flags: VerifyFlags, session: Session) -> int:
    """Read every file, and list what is not as it was."""
    from torchenv.actions.verify import verify_environment
    from torchenv.render.status import encode_findings

    environment = find_environment(flags.environment, session)
    findings = verify_environment(environment, session.store, session.output.progress("reading"))
    session.output.show(
        lambda: "\n".join(map(str, findings)) or f"environment {environment} unchanged",
        lambda: encode_findings(environment, findings),
    )
    return FOUND_SOMETHING if findings else 0


class SmokeFlags(NamedTuple):
    """What `smoke` takes."""

    environment: str | None


def declare_smoke(parser: Parser) -> None:
    """Declare what `smoke` takes."""
    add_environment(parser)
    add_profile(parser, "Profile whose commands run (default: torchenv.toml, else `default`)")
    add_json(parser)


def smoke(flags: SmokeFlags, session: Session) -> int:
    """Try it, record it as proven or failed, and print every step."""
    from platform import node

    from torchenv.actions.smoke import Trial
    from torchenv.actions.smoke import smoke as prove
    from torchenv.render.proofs import describe_smoke, encode_smoke

    environment = find_environment(flags.environment, session)
    trial = Trial(
        environment=environment,
        smoke=session.profile.smoke,
        profile=session.profile.name,
        packages=_list_required_imports(session, environment),
        catalogue=session.catalogue,
        host=read_host((), session),
        node=node(),
        directory=find_working_directory(session),
        environ=session.settings.environ,
    )
    smoked = prove(trial, session.make_ports())
    session.output.show(lambda: describe_smoke(smoked), lambda: encode_smoke(smoked))
    return 0 if smoked.proof.passed else FOUND_SOMETHING


def _list_required_imports(session: Session, environment: Environment) -> tuple[str, ...]:
    """Name the distributions that the profile asks for on this system and in this Python."""
    from packaging.requirements import Requirement

    from torchenv.environment.inspect import canonical
    from torchenv.packages import of_profile

    profile = session.profile
    carried = of_profile(
        profile.packages,
        f"profile {profile.name}",
        find_working_directory(session),
        read_text,
        session.catalogue,
    )
    asked = [Requirement(carry.requirement) for carry in (*carried.family, *carried.requirements)]
    python = environment.python.version
    inside = {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    names = [wanted.name for wanted in asked if wanted.marker is None or wanted.marker.evaluate(inside)]
    return tuple(dict.fromkeys(map(canonical, (*profile.torch.packages, *names))))


class EvaluateFlags(NamedTuple):
    """What `evaluate` takes."""

    environment: str | None
    against: str | None


def declare_evaluate(parser: Parser) -> None:
    """Declare what `evaluate` takes."""
    parser.add_argument(
        "environment", nargs="?", metavar="ENV", help="New environment (default: the active environment)"
    )
    parser.add_argument(
        "--against", metavar="ENV", help="Old environment (default: the active one, else the previous one)"
    )
    add_profile(parser, "Profile whose commands run (default: torchenv.toml, else `default`)")
    add_json(parser)


def evaluate(flags: EvaluateFlags, session: Session) -> int:
    """Run the profile's evaluation in both, and print the metrics side by side."""
    from platform import node

    from torchenv.actions.evaluate import Comparison
    from torchenv.actions.evaluate import evaluate as compare
    from torchenv.render.proofs import describe_evaluation, encode_evaluation

    new = find_environment(flags.environment, session)
    comparison = Comparison(
        old=_find_old(flags.against, new, session),
        new=new,
        evaluation=session.profile.evaluation,
        directory=find_working_directory(session),
        environ=session.settings.environ,
        node=node(),
    )
    evaluated = compare(comparison, session.make_ports())
    session.output.show(lambda: describe_evaluation(evaluated), lambda: encode_evaluation(evaluated))
    return 0 if evaluated.has_passed else FOUND_SOMETHING


def _find_old(named: str | None, new: Environment, session: Session) -> Environment:
    manifest = session.store.read()
    old = manifest.find(named) if named else manifest.active
    if named is None and old == new:
        old = manifest.rollback_target(lambda _: True)
    if old is None or old == new:
        hint = "name two of them; `torchenv list` shows what there is"
        raise InputError(f"no environment to compare environment {new} with", hint=hint)
    return old


COMMANDS = {
    "doctor": CommandSpec(declare_doctor, reader(DoctorFlags), doctor),
    "verify": CommandSpec(declare_verify, reader(VerifyFlags), verify),
    "smoke": CommandSpec(declare_smoke, reader(SmokeFlags), smoke),
    "evaluate": CommandSpec(declare_evaluate, reader(EvaluateFlags), evaluate),
}
