"""Add packages to the active environment, or drop some: a locked change in which all else stays as it is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from torchenv.actions.building import (
    build,
    clear_on_failure,
    commit_environment,
    fill,
    find_lock_differences,
    prove,
)
from torchenv.actions.diff import PackageChange
from torchenv.actions.inside import InsideReport, look
from torchenv.actions.ports import Ports
from torchenv.actions.run import directory_of
from torchenv.catalogue.releases import Catalogue
from torchenv.environment.base_python import BasePython
from torchenv.environment.fingerprint import fingerprint
from torchenv.environment.identity import new_identity
from torchenv.environment.inspect import Distribution, canonical, describe, distributions
from torchenv.environment.unshare import isolate
from torchenv.environment.verify import digest_of_base
from torchenv.errors import InputError, NothingSuits, ToolFailed, TorchenvError, WorkspaceError
from torchenv.installers import LockRequest, name_of
from torchenv.installers.local import install_local
from torchenv.lockfile.lock import Lock, write_local
from torchenv.packages import LocalPackage, of_file
from torchenv.packages.installed import TOOLS, find_reached, list_required, list_topmost, local_path
from torchenv.profile.model import Profile
from torchenv.system.documents import nearest
from torchenv.system.processes import Running
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import ChoiceRecord, Environment, EnvironmentKind


@frozen(kw_only=True)
class ChangeOrder:
    """What is to change: `added` are requirements, `dropped` are names.

    `macos` is the version to lock for, where the environment is one of macOS.
    """

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    profile: Profile
    catalogue: Catalogue
    package_index: str | None = None
    macos: str | None = None
    in_place: bool = False

    @property
    def verb(self) -> str:
        """What was typed, which is why the environment changes: `add wandb`."""
        return " ".join(("add", *self.added) if self.added else ("drop", *self.dropped))


@frozen(kw_only=True)
class Changed:
    """What changed from one environment to the other, which are the same where it was changed in place.

    `same` counts the packages that kept their version; `by_hand` were in no lock and did not come along.
    """

    before: Environment
    after: Environment
    packages: tuple[PackageChange, ...] = ()
    same: int = 0
    by_hand: tuple[str, ...] = ()
    is_active: bool = False


@frozen(kw_only=True)
class _Base:
    """The environment as it is: its lock, the document of its plan, and what is installed in it."""

    environment: Environment
    lock: Lock
    lock_path: Path
    plan: dict[str, Any]
    installed: dict[str, Distribution]

    @property
    def folders(self) -> tuple[LocalPackage, ...]:
        """The folders of this machine that were installed into it."""
        found = ((name, local_path(package)) for name, package in sorted(self.installed.items()))
        return tuple(
            LocalPackage(name=name, path=path[0], editable=path[1], source=self.environment.path)
            for name, path in found
            if path is not None
        )

    @property
    def by_hand(self) -> tuple[str, ...]:
        """The packages that its lock does not hold and that are no folders, each as `name version`."""
        known = {*self.lock.versions, *TOOLS, *(folder.name for folder in self.folders)}
        known |= {package.name for package in self.lock.packages}
        return tuple(
            f"{name} {package.version}"
            for name, package in sorted(self.installed.items())
            if name not in known
        )


def change(order: ChangeOrder, ports: Ports, running: Running) -> Changed:
    """Lock the change, then build it beside and make it active, or apply it in place.

    Raises `InputError` for what is no package, `NothingSuits` where the change does not fit what stays,
    `WorkspaceError` for an environment that torchenv does not own, `ToolFailed` where a tool fails.
    """
    base = _read_base(ports)
    request, plan = _plan(order, base)
    ports.say(f"choosing packages for environment {base.environment}")
    lock = ports.installer.lock(request)
    if base.lock.local:
        lock = lock.with_tool("torchenv", {"local": [write_local(folder) for folder in base.lock.local]})
    _refuse_other_torch(lock, base)
    packages = tuple(_compare(base.lock, lock))
    if not packages:
        return Changed(before=base.environment, after=base.environment, is_active=True)
    goal = _Goal(lock=lock, plan=plan, choice=_record_choice(order, base.environment, lock, packages))
    if order.in_place:
        after = _change_in_place(order, base, goal, ports, running)
    else:
        after = _change_beside(order, base, goal, ports)
    return Changed(
        before=base.environment,
        after=after,
        packages=packages,
        same=len(lock.packages) - sum(package.after is not None for package in packages),
        by_hand=base.by_hand,
        is_active=ports.store.read().current == after.number,
    )


@frozen(kw_only=True)
class _Goal:
    """What the environment is to be: its lock, the document of its plan, and how it came to that."""

    lock: Lock
    plan: dict[str, Any]
    choice: ChoiceRecord


# What there is.


def _read_base(ports: Ports) -> _Base:
    store = ports.store
    environment = store.read().require_active()
    number = environment.number
    if environment.kind is EnvironmentKind.ADOPTED:
        raise NothingSuits(
            f"environment {environment} was adopted, and torchenv only reads it",
            hint=f"build one with the same packages first: `torchenv create --like {number} --use`",
        )
    if not os.path.exists(Path(environment.python.path)):
        raise WorkspaceError(
            f"the interpreter `{environment.python.path}` of environment {environment} is gone",
            hint=f"rebuild it on another one: `torchenv restore {number}`",
        )
    path, plan_path = store.lock_path(number), store.plan_path(number)
    try:
        lock = Lock.parse(path.read_text(encoding="utf-8", errors="replace"), str(path))
        plan = json.loads(plan_path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise WorkspaceError(
            f"`{error.filename}` of environment {environment} is gone",
            hint="make a fresh environment with `torchenv create --use`",
        ) from None
    except ValueError:
        raise WorkspaceError(
            f"`{plan_path}` of environment {environment} is damaged",
            hint="make a fresh environment with `torchenv create --use`",
        ) from None
    installed = distributions(describe(directory_of(environment, store)))
    return _Base(
        environment=environment,
        lock=lock,
        lock_path=path,
        plan=plan,
        installed={canonical(package.name): package for package in installed},
    )


# What it is to be.


def _plan(order: ChangeOrder, base: _Base) -> tuple[LockRequest, dict[str, Any]]:
    """Return what to lock, and the document of the plan with its companions as they are then."""
    added = [_parse(text) for text in order.added]
    planned = [*base.plan["requirements"]]
    others = []
    for requirement in added:
        if canonical(requirement.name) in order.catalogue.family:
            planned = [line for line in planned if name_of(line) != canonical(requirement.name)]
            planned.append(_fit_companion(requirement, order, base))
        else:
            others.append(str(requirement))
    gone = _find_gone(order, base)
    planned = [line for line in planned if name_of(line) not in gone]
    replaced = {canonical(requirement.name) for requirement in added} | gone
    kept = of_file(str(base.lock_path), Path("/"), lambda _: base.lock.text, order.catalogue)
    pins = [package.asks[0] for package in kept.wanted if package.name not in replaced]
    python = base.plan["python"]
    request = LockRequest(
        requirements=tuple(planned),
        packages=(*pins, *others),
        torch_index=base.environment.index,
        package_index=order.package_index,
        family=order.catalogue.family | _list_backend_family(order, base),
        python=".".join(python["version"].split(".")[:2]),
        free_threaded=python["free_threaded"],
        interpreter=Path(base.environment.python.path),
        platform=base.environment.host or "",
        macos=order.macos,
        exclude_newer=order.profile.packages.exclude_newer,
        kept=base.lock.text,
        private=order.profile.index.private,
        asked_by={canonical(name_of(text)): "the command line" for text in others},
    )
    return request, {**base.plan, "requirements": planned}


def _list_backend_family(order: ChangeOrder, base: _Base) -> frozenset[str]:
    release = _find_release(order, base)
    backend = release.backend(base.environment.backend or "") if release else None
    return frozenset(backend.family) if backend else frozenset()


def _find_release(order: ChangeOrder, base: _Base) -> Any:
    version = Version(base.plan["torch"])
    return next((one for one in order.catalogue.releases if one.version == version), None)


def _parse(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement:
        hint = "name packages such as `wandb` or `numpy>=2.2`; folders belong in torchenv.toml"
        raise InputError(f"`{text}` does not name a package", hint=hint) from None


def _fit_companion(requirement: Requirement, order: ChangeOrder, base: _Base) -> str:
    """Return the requirement of a package of torch's family in the version that belongs to torch's."""
    name, torch = canonical(requirement.name), base.environment.torch
    release = _find_release(order, base)
    companion = release.companions.get(name) if release else None
    if companion is None:
        raise NothingSuits(
            f"`{requirement.name}` is decided by the plan, and no version of it is known for torch {torch}",
            hint="plan another environment with `torchenv plan`",
        )
    if companion.exists(base.environment.backend or "") is False:
        raise NothingSuits(
            f"`{name}` is not built for torch {torch}", hint="choose another with `torchenv plan`"
        )
    if not requirement.specifier.contains(companion.version, prereleases=True):
        raise NothingSuits(
            f"`{requirement}` does not fit torch {torch}, which has {name} {companion.version}",
            hint=f"run `torchenv add {name}`",
        )
    return f"{name}=={companion.version}"


def _find_gone(order: ChangeOrder, base: _Base) -> set[str]:
    """Return the dropped packages, and those that were added for them alone; raises where one is needed."""
    locked = {package.name for package in base.lock.packages}
    dropped = {canonical(name) for name in order.dropped}
    for name in sorted(dropped):
        if name == "torch":
            raise NothingSuits(
                "`torch` cannot be dropped from its environment", hint="choose another with `torchenv create`"
            )
        if name not in locked:
            hint = nearest(name, sorted(locked)) or "list what it holds with `torchenv show --json`"
            raise InputError(f"`{name}` is not in the lock file of environment {base.environment}", hint=hint)
    if not dropped:
        return set()
    installed = {name: package for name, package in base.installed.items() if name in locked}
    for name in sorted(dropped):
        users = sorted(
            user
            for user, package in installed.items()
            if user not in dropped and name in {canonical(wanted.name) for wanted in list_required(package)}
        )
        if users:
            raise NothingSuits(
                f"`{name}` is needed by {', '.join(f'`{user}`' for user in users)}",
                hint=f"drop them together: `torchenv drop {' '.join([name, *users])}`"
                if "torch" not in users
                else "keep it: torch does not run without it",
            )
    asked = [*base.plan["requirements"], *order.profile.packages.requirements, *_list_added(base.environment)]
    roots = {*list_topmost(set(installed), installed), *map(name_of, asked)} - dropped
    # What came with the environment itself stays, whoever else needed it.
    return dropped | (set(_list_brought(base.environment)) - find_reached(roots, installed))


def _list_added(environment: Environment) -> tuple[str, ...]:
    return environment.choice.added if environment.choice else ()


def _record_choice(
    order: ChangeOrder, environment: Environment, lock: Lock, packages: Sequence[PackageChange]
) -> ChoiceRecord:
    replaced = {*map(name_of, order.added), *map(canonical, order.dropped)}
    stay = (text for text in _list_added(environment) if name_of(text) not in replaced)
    added = (*stay, *order.added)
    new = [package.name for package in packages if package.before is None]
    brought = {*_list_brought(environment), *new} & {package.name for package in lock.packages}
    return replace(
        environment.choice or ChoiceRecord(),
        added=added,
        brought=tuple(sorted(brought - set(map(name_of, added)))),
    )


def _list_brought(environment: Environment) -> tuple[str, ...]:
    return environment.choice.brought if environment.choice else ()


def _refuse_other_torch(lock: Lock, base: _Base) -> None:
    before, after = base.lock.versions.get("torch"), lock.versions.get("torch")
    if before != after:
        raise NothingSuits(
            f"the change would replace torch {before} by {after}",
            hint="plan another environment with `torchenv plan`",
        )


def _compare(before: Lock, after: Lock) -> Iterator[PackageChange]:
    old, new = ({package.name: _version_of(package) for package in lock.packages} for lock in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield PackageChange(name, old.get(name), new.get(name))


def _version_of(package: Any) -> str:
    return package.version or "from a repository"


# Making it so.


def _change_beside(order: ChangeOrder, base: _Base, goal: _Goal, ports: Ports) -> Environment:
    store, before, purpose = ports.store, base.environment, f"torchenv {order.verb}"
    with ExitStack() as own:
        with store.hold(purpose):
            manifest, new = _begin(store.clear_unfinished(), before, goal.choice, ports)
            own.enter_context(store.build(new.number, goal.lock.digest, purpose))
            own.enter_context(clear_on_failure(ports, purpose))
            store.write(manifest)
        store.write_plan(new.number, _write_plan(goal.plan))
        directory = build(new, goal.lock, Path(new.python.path), ports)
        if base.folders:
            install_local(ports.run, directory, base.folders, package_index=order.package_index)
        built, _ = prove(new, goal.lock, ports, lambda: _look(new, goal, ports))
        with store.hold(purpose):
            manifest, ready = commit_environment(store.read(), new, ports, what=order.verb, built=built)
            # Whoever switched meanwhile, or wants proof first, decides what is active.
            if manifest.current == before.number and not order.profile.smoke.required:
                manifest = manifest.use(ready.number, why=order.verb, at=ports.now())
            store.write(manifest)
            store.remake_current(manifest)
        return ready


def _begin(
    manifest: Manifest, before: Environment, choice: ChoiceRecord, ports: Ports
) -> tuple[Manifest, Environment]:
    python = Path(before.python.path)
    return manifest.begin(
        # A name that got a number at its end because it was taken gets another one, not a second.
        before.name.removesuffix(f"-{before.number}"),
        within=ports.store.environments,
        python=BasePython(before.python.version, str(python), digest_of_base(python)),
        at=ports.now(),
        torch=before.torch,
        backend=before.backend,
        index=before.index,
        reads=before.reads,
        identity=new_identity(),
        host=before.host,
        choice=choice,
        activation=before.activation,
    )


def _change_in_place(
    order: ChangeOrder,
    base: _Base,
    goal: _Goal,
    ports: Ports,
    running: Running,
) -> Environment:
    store, before, purpose = ports.store, base.environment, f"torchenv {order.verb} --in-place"
    number, directory = before.number, Path(before.path)
    with ExitStack() as own:
        with store.hold(purpose):
            if processes := running([directory]):
                raise WorkspaceError(
                    f"environment {before} is still used by {', '.join(map(str, processes))}",
                    hint=f"stop it first, or build beside it: `torchenv {order.verb}`",
                )
            own.enter_context(store.build(number, goal.lock.digest, purpose))
        own.callback(store.delete_pending_lock, number)
        ports.say(f"changing {directory} in place")
        try:
            _apply(order, base, goal.lock, store.write_pending_lock(number, goal.lock.text), ports)
            built, _ = prove(
                before, goal.lock, ports, lambda: _look(before, goal, ports, dropped=order.dropped)
            )
        except TorchenvError:
            ports.say("the change failed: restoring the packages from before")
            with suppress(TorchenvError):
                _apply(order, base, base.lock, base.lock_path, ports)
                isolate(directory)
                store.write_fingerprint(number, fingerprint(describe(directory)).text)
            raise
        except KeyboardInterrupt:
            ports.say(f"the change of environment {before} was interrupted: finish it with `{purpose}`")
            raise
        with store.hold(purpose):
            store.write_lock(number, goal.lock.text)
            store.write_plan(number, _write_plan(goal.plan))
            manifest = store.read()
            changing = replace(manifest.number(number), choice=goal.choice)
            manifest, ready = commit_environment(manifest, changing, ports, what=order.verb, built=built)
            store.write(manifest)
        return ready


def _apply(order: ChangeOrder, base: _Base, lock: Lock, lock_path: Path, ports: Ports) -> None:
    """Put a lock into the environment, and the folders of this machine back beside it."""
    fill(base.environment, lock, lock_path, ports)
    if base.folders:
        directory = Path(base.environment.path)
        install_local(ports.run, directory, base.folders, package_index=order.package_index)


def _write_plan(plan: dict[str, Any]) -> str:
    return f"{json.dumps(plan, indent=2, ensure_ascii=False)}\n"


def _look(
    environment: Environment, goal: _Goal, ports: Ports, *, dropped: Sequence[str] = ()
) -> InsideReport:
    ports.say("checking that torch imports and computes")
    companions = tuple(
        name_of(line).replace("-", "_") for line in goal.plan["requirements"] if name_of(line) != "torch"
    )
    report = look(ports.run, Path(environment.path), companions, environment.activation)
    wrong = [*find_lock_differences(goal.lock, report.data["packages"])]
    wrong += [f"{name} is still installed" for name in dropped if canonical(name) in report.data["packages"]]
    if error := report.data.get("torch_error"):
        wrong.append(f"torch does not import: {error}")
    wrong += [f"{name} does not import: {why}" for name, why in report.data["imports"].items() if why]
    if wrong:
        raise ToolFailed(
            f"environment {environment} does not match its lock file: {'; '.join(wrong)}",
            hint="look at the active environment with `torchenv status`",
        )
    return report
