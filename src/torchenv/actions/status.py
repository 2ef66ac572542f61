"""Show the active environment, whether it is as it was built, and what around it may undo that."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

from packaging.version import Version

from torchenv.actions.causes.gather import find_causes
from torchenv.actions.causes.surroundings import find_surroundings
from torchenv.actions.fetchable import expiring
from torchenv.actions.run import directory_of
from torchenv.actions.switch import drift, unusable
from torchenv.catalogue.releases import Catalogue
from torchenv.checkpoints.lifeboats import StrandedRun, list_stranded
from torchenv.environment.findings import EnvironmentFinding, find_wrong
from torchenv.environment.inspect import canonical, describe, distributions
from torchenv.errors import InputError, WorkspaceError
from torchenv.host.model import Host, Problem
from torchenv.lockfile.lock import Lock
from torchenv.system.processes import Process, Running
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, EnvironmentKind, Run, State
from torchenv.workspace.store import Moved, Store


@frozen
class Machine:
    """What the active environment runs on, and what is known of torch's builds."""

    host: Host
    catalogue: Catalogue


@frozen(kw_only=True)
class StatusReport:
    """What there is to say; `before` is where a rollback would lead, `runs` are those of training.

    `stranded` are the runs whose newest save `before` cannot read. An upgrade `is_on_trial` from its switch
    until `commit`. `sizes` are the bytes of each built environment by its number, `removed` are those that
    can be rebuilt.
    """

    current: Environment | None
    before: Environment | None
    problems: tuple[Problem, ...]
    running: tuple[Process, ...]
    runs: tuple[Run, ...] = ()
    stranded: tuple[StrandedRun, ...] = ()
    is_on_trial: bool = False
    sizes: Mapping[int, int] = field(default_factory=dict, hash=False)
    removed: tuple[Environment, ...] = ()


def status(
    store: Store,
    environ: Mapping[str, str],
    project: Path | None,
    running: Running,
    runs: tuple[Run, ...] = (),
    *,
    around: Machine | None = None,
) -> StatusReport:
    """Look at the environment in use and around it; changes nothing and waits for nobody.

    Without `around` only its files are looked at, and not what its torch needs of the machine.
    Codes: unusable, drift, by-hand, expires, other-active, unfinished, journal-damaged, those of the causes.
    """
    manifest = store.read()
    current = manifest.active
    before = manifest.rollback_target(lambda item: unusable(item, store) is None)
    of_environment = tuple(_of_environment(current, store, environ, around)) if current else ()
    beside = find_surroundings(environ, project, torch=current.torch if current else None)
    return StatusReport(
        current=current,
        before=before,
        problems=(
            *of_environment,
            *(_active_elsewhere(current, environ) if current else ()),
            # PYTHONPATH is told once, with what it shadows.
            *(problem for problem in beside if problem.code not in {told.code for told in of_environment}),
            *_find_unfinished(manifest),
            *_find_damaged_journal(store),
        ),
        running=running([Path(current.path)]) if current else (),
        runs=runs,
        stranded=list_stranded(runs, before, manifest) if before else (),
        is_on_trial=store.read_trial() is not None,
        sizes=_read_sizes(manifest, store),
        removed=tuple(
            environment
            for environment in manifest.environments
            if environment.state is State.REMOVED and os.path.isfile(store.lock_path(environment.number))
        ),
    )


def _find_damaged_journal(store: Store) -> Iterator[Problem]:
    try:
        store.read_journal()
    except WorkspaceError as error:
        yield Problem("journal-damaged", str(store.root), f"{error.message}; {error.hint}")


def _read_sizes(manifest: Manifest, store: Store) -> dict[int, int]:
    built = [one for one in manifest.environments if one.kind is EnvironmentKind.BUILT and one.on_disk]
    sizes = ((environment.number, store.read_built_size(environment)) for environment in built)
    return {number: size for number, size in sizes if size is not None}


def list_added_by_hand(directory: Path, lock: Lock) -> tuple[str, ...]:
    """Return the packages in an environment that its lock does not hold, each as `name version`."""
    return tuple(
        f"{name} {version}"
        for name, version in sorted(_find_versions(directory).items())
        if name not in lock.versions
    )


def _find_versions(directory: Path) -> dict[str, str]:
    installed = distributions(describe(directory))
    return {canonical(distribution.name): distribution.version for distribution in installed}


def _of_environment(
    environment: Environment,
    store: Store,
    environ: Mapping[str, str],
    around: Machine | None,
) -> Iterator[Problem]:
    if (why := unusable(environment, store)) is not None:
        yield Problem("unusable", environment.path, f"environment {environment} cannot be used: {why}")
        return
    directory = directory_of(environment, store)
    yield from _find_causes(environment, directory, store, environ, around)
    if (changed := drift(environment, directory)) is not None:
        yield Problem("drift", str(directory), changed)
    lock = store.lock_path(environment.number)
    if os.path.isfile(lock):
        try:
            found = Lock.parse(lock.read_text(encoding="utf-8"), str(lock))
        except (OSError, UnicodeDecodeError, InputError) as error:
            yield Problem("lock-damaged", str(lock), f"the lock file cannot be read: {error}")
        else:
            yield from _find_changes_since_lock(directory, found)


def _find_causes(
    environment: Environment,
    directory: Path,
    store: Store,
    environ: Mapping[str, str],
    around: Machine | None,
) -> Iterator[Problem]:
    """Yield what is wrong with its files, then all that doctor knows of without starting its Python."""
    installation = describe(directory)
    if around is None:
        wrong = find_wrong(installation)
    else:
        installed = distributions(installation)
        wrong = find_causes(installation, installed, around.host, around.catalogue, environ).all
    where = store.locate(environment)
    if isinstance(where, Moved) and all(finding.code != "moved" for finding in wrong):
        moved = EnvironmentFinding(
            "moved", str(directory), f"was moved here from {where.was}", "torchenv create"
        )
        wrong = (moved, *wrong)
    yield from (Problem(finding.code, finding.path, finding.advice) for finding in wrong)


def _find_changes_since_lock(directory: Path, lock: Lock) -> Iterator[Problem]:
    """Name what was installed by hand since the environment was built; torch itself is told as its drift."""
    found = _find_versions(directory)
    for name, version in lock.versions.items():
        now = found.get(name)
        if name != "torch" and (now is None or Version(now).public != Version(version).public):
            yield Problem("drift", str(directory), f"drift: {name} {version} -> {now or 'removed'}")
    if added := sorted(found.keys() - lock.versions.keys()):
        said = f"installed by hand, and in no lock file: {', '.join(added)}"
        yield Problem("by-hand", str(directory), said)
    yield from (Problem("expires", str(directory), item) for item in expiring(lock))


def _active_elsewhere(current: Environment, environ: Mapping[str, str]) -> Iterator[Problem]:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = environ.get(name)
        if active and environ.get("CONDA_DEFAULT_ENV") != "base" and Path(active) != Path(current.path):
            said = f"this shell is in {active}, and {current.path} is in use"
            yield Problem("other-active", name, f'{said}: eval "$(torchenv activate)" enters it')


def _find_unfinished(manifest: Manifest) -> Iterator[Problem]:
    for item in manifest.list_unfinished():
        said = f"environment {item} is being built, or is left of a run that was interrupted"
        yield Problem("unfinished", item.path, said)
