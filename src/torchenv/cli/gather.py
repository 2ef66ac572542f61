"""What a command reads before it decides: hosts, packages, checkpoints, the environment that is meant."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from torchenv.cli.session import Session, now, read_text
from torchenv.errors import InputError
from torchenv.system.looking import find_paths

if TYPE_CHECKING:
    from torchenv.actions.remove import Irreplaceable
    from torchenv.actions.rescan import Rescan
    from torchenv.audit import AuditReport
    from torchenv.environment.inspect import Installation
    from torchenv.host.model import Host, SeenEnvironment
    from torchenv.packages import CarriedPackages
    from torchenv.plan import Known, Lifeboat, Plan, Question
    from torchenv.workspace.manifest import Manifest
    from torchenv.workspace.records import Environment


def find_environment(named: str | None, session: Session, *, removed: bool = False) -> Environment:
    """Return the environment that the user means, or the active one; raises `TorchenvError`."""
    manifest = session.store.read()
    if named is not None:
        return manifest.find(named, removed=removed)
    return manifest.require_active()


def probe_host(session: Session, *, python: str | None = None, sysroot: Path | None = None) -> Host:
    """Look at this machine; `python` may be the path of an interpreter to look at too."""
    from torchenv.host.probe import Sources, probe
    from torchenv.plan.python import is_path

    settings = session.settings
    if sysroot is None:
        sources = Sources(run=session.programs, variables=settings.environ)
    else:
        sources = Sources.sysroot(session.programs, settings.environ, sysroot)
    named = Path(python) if python and is_path(python) else None
    return probe(sources, project=settings.project or settings.cwd, now=now(), named=named)


def read_host(
    files: Sequence[str], session: Session, *, python: str | None = None, asks_torch: bool = False
) -> Host:
    """Return the machine that is planned for: the one that the file describes, else this one.

    With `asks_torch` the torch of an environment here is started for what else cannot be read of a card.
    """
    if len(files) > 1:
        hint = f"leave out `--host {files[1]}`, or run it for each"
        raise InputError("one plan is for one machine, and --host names several", hint=hint)
    if files:
        from torchenv.host.model import Host

        return Host.from_json(read_text(session.settings.cwd / files[0], "the host file"), files[0])
    host = probe_host(session, python=python)
    if asks_torch and _find_unknown_cards(host, session):
        from torchenv.host.probe.ask_torch import ask_torch

        return ask_torch(host, session.programs)
    return host


def may_ask_torch(host: Host, session: Session) -> bool:
    """Ask a person whether the torch of an environment may be started; no where it would tell nothing."""
    unknown = _find_unknown_cards(host, session)
    asked = next((one.path for one in host.environments if one.torch is not None), None)
    if not unknown or asked is None:
        return False
    said = f"the compute capability of {', '.join(unknown)} is not known"
    if session.stdin is None or not session.stdin.isatty():
        session.output.note(f"{said}: with --ask-torch the torch in {asked} is started and asked")
        return False
    return session.ask_yes_no(f"{said}; start the torch in {asked} to ask it?")


def _find_unknown_cards(host: Host, session: Session) -> tuple[str, ...]:
    names = (device.name for device in host.nvidia.devices if device.compute_capability is None)
    return tuple(dict.fromkeys(name for name in names if session.catalogue.find_capability(name) is None))


def read_hosts(files: Sequence[str], session: Session) -> dict[str, Host]:
    """Read host files, by the names that people know them by: without folder and ending if that tells."""
    from torchenv.host.model import Host

    stems = [Path(file).stem for file in files]
    names = stems if len(set(stems)) == len(stems) else list(files)
    texts = (read_text(session.settings.cwd / file, "the host file") for file in files)
    return {name: Host.from_json(text, file) for name, text, file in zip(names, texts, files, strict=True)}


def find_model(named: str | None, session: Session) -> Installation | None:
    """Look at the environment that `--like` names: one on disk, else one of the workspace."""
    from torchenv.actions.run import directory_of
    from torchenv.environment.inspect import describe

    if named is None:
        return None
    path = session.settings.cwd / named
    if os.path.isdir(path):
        return describe(path)
    if "/" in named or named.startswith((".", "~")):
        # The names of environments begin with a letter or a digit.
        if os.path.exists(path):
            return describe(path)
        near = _name_near_folder(path.name, path.parent)
        hint = near or "name the directory of an environment, or one that `torchenv list` lists"
        raise InputError(f"`{path}` does not exist", hint=hint)
    try:
        environment = find_environment(named, session)
    except InputError as error:
        error.hint = _name_near_folder(named, session.settings.cwd) or error.hint
        raise
    return describe(directory_of(environment, session.store))


def _name_near_folder(named: str, directory: Path) -> str | None:
    """Guess which environment of this directory was meant by a word that is the name of none."""
    from torchenv.system.documents import nearest

    found = [path.parent.name for path in find_paths(directory, "*/pyvenv.cfg")]
    return nearest(named, found)


def collect_packages(files: Sequence[str], model: Installation | None, session: Session) -> CarriedPackages:
    """Put together what the profile, `--like` and `--from` ask for; raises `InputError`."""
    from torchenv.environment.inspect import distributions
    from torchenv.packages import of_environment, of_file, of_profile, together

    catalogue, profile, cwd = session.catalogue, session.profile, session.settings.cwd
    directory = find_profile_directory(session)
    parts = [of_profile(profile.packages, f"profile {profile.name}", directory, read_text, catalogue)]
    parts += [of_file(file, cwd, read_text, catalogue) for file in files]
    bases = [directory, *(cwd for _ in files)]
    parts = [_anchor(part, base) for part, base in zip(parts, bases, strict=True)]
    if model is not None:
        parts.append(of_environment(distributions(model), str(model.path), catalogue))
    return together(*parts)


def _anchor(carried: CarriedPackages, base: Path) -> CarriedPackages:
    """Name the folders of a part by their absolute paths, since each part has a base of its own."""
    local = tuple(replace(folder, path=str((base / folder.path).resolve())) for folder in carried.local)
    return replace(carried, local=local)


def find_profile_directory(session: Session) -> Path:
    """Return the directory that the names of files in the profile begin from."""
    path = session.settings.profile_path
    return path.parent if path else session.settings.cwd


def find_working_directory(session: Session) -> Path:
    """Return the directory that the profile's commands are written for: that of its file."""
    settings = session.settings
    if settings.profile_path is not None:
        return settings.profile_path.parent.resolve()
    return settings.project or settings.cwd


def gather_known(session: Session, findings: Mapping[str, int] | None = None) -> Known:
    """Gather what weighs in the advice alone; `findings` counts those of an audit by severity."""
    from torchenv.plan import Known

    checkpoints = session.profile.checkpoints
    return Known(
        lifeboat=_find_lifeboat(session) if checkpoints.distributed else None,
        oldest_lifeboat=checkpoints.lifeboat_max_age,
        findings=findings or {},
    )


def find_active(session: Session) -> SeenEnvironment | None:
    """Return the manifest's active environment as the plan weighs it; None where there is none."""
    # Without a record nothing is active, and what reads one takes a third of a plan's time to import.
    if not find_paths(session.settings.root, "manifest.toml*"):
        return None
    from packaging.version import Version

    from torchenv.host.model import SeenEnvironment

    active = session.store.read().active
    if active is None:
        return None
    return SeenEnvironment(
        path=active.path,
        python=Version(active.python.version),
        torch=None if active.torch is None else Version(active.torch),
        active=True,
    )


def find_minor(model: Installation | None) -> str | None:
    """Return the minor version of the Python of an environment that is copied, such as `3.12`."""
    found = re.match(r"\d+\.\d+", (model and model.python) or "")
    return found[0] if found else None


def _find_lifeboat(session: Session) -> Lifeboat | None:
    from torchenv.checkpoints.lifeboats import find_newest_kept
    from torchenv.plan import Lifeboat

    kept = find_newest_kept(session.store.read())
    if kept is None or kept.saved is None:
        return None
    return Lifeboat(kept.path, max(now() - kept.saved, timedelta()))


def decide(question: Question, session: Session, *, is_plan: bool) -> Plan:
    """Decide for a host, and ask the indexes whether that can be had: for `plan` and `create` alike.

    Nothing is asked `--offline`, or for another machine: what the catalogue says of the indexes counts then.
    """
    from torchenv.plan import resolve

    found = resolve(question)
    names_no_build = found.build is None and not found.offered
    if question.wish.offline or question.is_elsewhere or names_no_build:
        return found
    return _replan_with_indexes(found, question, session, is_plan=is_plan)


def _replan_with_indexes(plan: Plan, question: Question, session: Session, *, is_plan: bool) -> Plan:
    """Return the plan that the indexes can serve, and keep their answers for the plans of the next hour.

    With `is_plan` they have two seconds to answer, and what they answered in the last hour is believed.
    """
    from torchenv.actions.ask_index import PLAN_SECONDS, IndexMemory, IndexQuery, replan_with_index
    from torchenv.installers.uv import PYTHONS

    network = session.network.within(PLAN_SECONDS) if is_plan else session.network
    query = IndexQuery(
        network=network,
        memory=IndexMemory.parse(session.store.read_index_answers(), now(), is_believed=is_plan),
        pythons=session.settings.python_mirror or PYTHONS,
        named_by_user=session.mirrors.hosts,
        is_impatient=is_plan,
    )
    plan = replan_with_index(plan, question, query)
    if query.memory is not None:
        session.store.write_index_answers(query.memory.write())
    return plan


def add_warnings(plan: Plan, session: Session) -> Plan:
    """Add to the warnings of a plan which checkpoints its torch cannot read."""
    # Without a workspace there is no record, and reading one costs a plan a tenth of its time.
    if plan.build is None or not os.path.isdir(session.settings.root):
        return plan
    from torchenv.checkpoints.lifeboats import out_of_reach
    from torchenv.plan.values import Remark

    lost = out_of_reach(session.store.read(), plan.build.release.version)
    remarks = (Remark("checkpoints-out-of-reach", message) for message in lost)
    return replace(plan, warnings=(*plan.warnings, *remarks))


def add_download(plan: Plan, host: Host, session: Session, *, is_here: bool = True) -> Plan:
    """Add to a plan what is to be fetched for it, and whether uv has torch already where it `is_here`."""
    if plan.build is None:
        return plan
    from dataclasses import replace

    from torchenv.plan.values import Download

    build, settings = plan.build, session.settings
    # What is measured is a build for GPUs with their libraries.
    mib = None if build.backend.vendor == "cpu" else build.release.download_mib.get(host.platform)
    is_cached = False
    if is_here:
        from torchenv.installers.cache import locate_cache

        cache = locate_cache(settings.environ, settings.home, settings.system)
        version = build.torch if build.index else str(build.release.version)
        is_cached = cache is not None and cache.holds_build("torch", version, build.python.minor)
    return replace(plan, build=replace(build, download=Download(mib, is_cached)))


def note_surroundings(torch: str | None, session: Session) -> None:
    """Describe what stands around an environment with this torch and may undo it."""
    from torchenv.actions.causes.surroundings import find_surroundings

    for problem in find_surroundings(session.settings.environ, session.settings.project, torch=torch):
        session.output.note(problem.message)


def explain_irreplaceable(session: Session, *, force: bool) -> Irreplaceable:
    """Return what says why an environment could not be built again: nothing with `force` or offline."""
    if force or session.settings.is_offline:
        return lambda _: None
    from torchenv.actions.fetchable import irreplaceable

    return lambda environment: irreplaceable(environment, session.store, session.head, session.output.say)


def list_roots(session: Session) -> tuple[str, ...]:
    """Return where checkpoints are known to be: the profile's roots, what runs wrote to, usual names."""
    from torchenv.actions.checkpoints import address_of
    from torchenv.actions.rescan import find_roots

    settings = session.settings
    path = settings.profile_path
    beside = path.parent if path else settings.project or settings.cwd
    named = [address_of(root, beside) for root in _list_profile_roots(session)]
    return find_roots(named, session.store.read_written(), settings.project, settings.home)


def _list_profile_roots(session: Session) -> tuple[str, ...]:
    try:
        return session.profile.checkpoints.roots
    except InputError as error:
        # A profile with a mistake in it must not take the way back.
        session.output.note(error.message)
        return ()


def rescan_checkpoints(session: Session, *, record: bool = True, manifest: Manifest | None = None) -> Rescan:
    """Look again below all roots that are known, and say what could not be looked at.

    A `manifest` in place of the recorded one says whose reading is asked for.
    """
    from torchenv.actions.rescan import rescan

    seen = rescan(
        list_roots(session),
        session.store,
        system=session.settings.checkpoint_system,
        record=record,
        now=now().timestamp(),
        manifest=manifest,
    )
    for note in seen.notes:
        session.output.note(note)
    return seen


def audit_paths(
    paths: Sequence[str], session: Session, *, release: str | None = None, since: str | None = None
) -> AuditReport:
    """Audit what the user named, under the names that the user gave.

    `release` is audited for, by default the newest; `since` is what the code runs on today. A catalogue of
    the user's own counts where it was named.
    """
    from torchenv.actions.audit import audit
    from torchenv.audit import read_breakages
    from torchenv.catalogue import resources

    own, cwd = session.settings.catalogue, session.settings.cwd
    breakages = read_breakages(resources.section("audit", own), resources.catalogue(own), release, since)
    for path in paths:
        if not os.path.exists(cwd / path):
            raise InputError(f"`{path}` does not exist")
    report = audit([cwd / path for path in paths], breakages)
    absolute = [path for path in paths if Path(path).is_absolute()]

    def show(path: str) -> str:
        return path if path.startswith(tuple(absolute)) else path.removeprefix(f"{cwd.as_posix()}/")

    return replace(
        report,
        findings=tuple(replace(finding, path=show(finding.path)) for finding in report.findings),
        unread=tuple(replace(file, path=show(file.path)) for file in report.unread),
    )
