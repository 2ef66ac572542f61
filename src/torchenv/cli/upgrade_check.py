"""What speaks for and against an upgrade: the machine, the code, the packages and the checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torchenv.cli.building import fit_packages
from torchenv.cli.choice import Choice, make_wish
from torchenv.cli.gather import (
    add_warnings,
    audit_paths,
    collect_packages,
    decide,
    find_active,
    find_model,
    gather_known,
    probe_host,
    rescan_checkpoints,
)
from torchenv.cli.session import Session, now
from torchenv.errors import TorchenvError
from torchenv.plan import Question
from torchenv.system.words import count, describe_age

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torchenv.actions.upgrade import Findings, UpgradeFinding
    from torchenv.host.model import Host
    from torchenv.plan import Known, Plan
    from torchenv.workspace.manifest import Manifest
    from torchenv.workspace.records import Environment, Run


def check(version: str | None, session: Session) -> Findings:
    """Look at the machine, the code, the packages and the checkpoints; nothing is changed."""
    from torchenv.actions.adopt import foresee_adoption
    from torchenv.actions.upgrade import Findings, judge_upgrade

    recorded, host = session.store.read(), probe_host(session)
    manifest, foreseen = foresee_adoption(recorded, host, session.catalogue, now())
    old = recorded.active or foreseen
    seen = rescan_checkpoints(session, record=False, manifest=manifest)
    project = session.settings.project
    audited = audit_paths([str(project)], session) if project else None
    counts = {"error": 0, "warning": 0, "note": 0}
    for finding in audited.findings if audited else ():
        counts[str(finding.severity)] += 1
    known = gather_known(session, {key: number for key, number in counts.items() if number})
    plan = add_warnings(make_plan(version, known, host, session), session)
    return Findings(
        verdict=judge_upgrade(plan),
        plan=plan,
        old=old,
        is_recorded=recorded.active is not None,
        findings=(
            _find_machine(plan),
            _find_environment(old),
            _find_code(counts),
            *_find_packages(plan, host, old, session),
            *_find_checkpoints(old, manifest, seen.runs, session),
        ),
        reasons=plan.advice.reasons or plan.why,
    )


def choose(version: str | None) -> Choice:
    """Return the choice of a person who names a release and nothing else."""
    return Choice(
        version=version,
        hosts=(),
        backends=(),
        python=None,
        capability=None,
        devices=None,
        all_devices=False,
        prefer=None,
        no_fallback=False,
        accept_cpu=False,
        accept_override=False,
    )


def make_plan(version: str | None, known: Known, host: Host, session: Session) -> Plan:
    """Decide for this machine as `create` would."""
    wish = make_wish(choose(version), session)
    question = Question(
        host=host, wish=wish, catalogue=session.catalogue, known=known, active=find_active(session)
    )
    return decide(question, session, is_plan=True)


def _find_machine(plan: Plan) -> UpgradeFinding:
    from torchenv.actions.upgrade import UpgradeFinding
    from torchenv.render.plan import describe_decision, describe_refusal

    said = describe_decision(plan) if plan.build else describe_refusal(plan)
    return UpgradeFinding("machine", said.splitlines()[0], plan.opens)


def _find_environment(old: Environment | None) -> UpgradeFinding:
    from torchenv.actions.upgrade import UpgradeFinding

    if old is None:
        return UpgradeFinding("environment", "no active environment")
    return UpgradeFinding("environment", f"torch {old.torch}, Python {old.python.version}")


def _find_code(counts: Mapping[str, int]) -> UpgradeFinding:
    from torchenv.actions.upgrade import UpgradeFinding

    code = ", ".join(count(number, severity) for severity, number in counts.items())
    is_grave = counts["error"] or counts["warning"]
    return UpgradeFinding("code", code, "see them with `torchenv audit .`" if is_grave else None)


def _find_packages(
    plan: Plan, host: Host, old: Environment | None, session: Session
) -> Iterator[UpgradeFinding]:
    """Yield how many packages go along, and each that cannot: extensions of one's own are built again."""
    from torchenv.actions.upgrade import UpgradeFinding

    try:
        is_recorded = old == session.store.read().active
        model = find_model(str(old.number) if is_recorded else old.path, session) if old else None
        carried = collect_packages((), model, session)
        if plan.build is not None:
            carried = fit_packages(carried, model, plan.build, host, session)
    except TorchenvError as error:
        yield UpgradeFinding("packages", error.message, error.hint)
        return
    number, lost = len(carried.wanted) + len(carried.requirements), len(carried.cannot_follow)
    yield UpgradeFinding("packages", f"{number} to carry over, {lost} cannot follow")
    for package in carried.cannot_follow:
        found = f"{package.name} {package.version} cannot follow: {package.why}"
        yield UpgradeFinding("packages", found, package.exists)


def _find_checkpoints(
    old: Environment | None, manifest: Manifest, runs: tuple[Run, ...], session: Session
) -> Iterator[UpgradeFinding]:
    """Yield what the environment to go back to reads, and how old its lifeboat is."""
    from torchenv.actions.upgrade import UpgradeFinding
    from torchenv.checkpoints.lifeboats import find_newest_kept

    readable = [run for run in runs if old is not None and old.number in run.newest_readable]
    yield UpgradeFinding(
        "checkpoints",
        f"{count(len(runs), 'run')}, {len(readable)} with a save that the active environment reads",
        "the newest of each is protected before the switch" if readable else None,
    )
    if not readable or old is None:
        return
    boat = find_newest_kept(replace(manifest, current=old.number))
    if boat is None:
        yield UpgradeFinding("checkpoints", "no lifeboat yet")
    else:
        age = f", saved {describe_age((now() - boat.saved).total_seconds())}" if boat.saved else ""
        yield UpgradeFinding("checkpoints", f"lifeboat: {boat.path}{age}")
    if (target := session.profile.checkpoints.write_for) is not None:
        said = f"`torchenv run` writes distributed checkpoints for torch {target}, as the profile says"
        yield UpgradeFinding("checkpoints", said)
