"""Lock every target of a project, on any machine, and say what has drifted since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torchenv.actions.carry import lock_with
from torchenv.actions.fetchable import expiring
from torchenv.catalogue.releases import Catalogue
from torchenv.errors import IndexFailed, InputError, NothingSuits, ToolFailed, TorchenvError
from torchenv.installers import Installer, LockRequest, name_of
from torchenv.lockfile.lock import Lock, write_local
from torchenv.lockfile.lockset import FILE, Decided, LockedTarget, LockSet, lock_file
from torchenv.packages import CarriedPackages, companions, refuse_conflicts
from torchenv.plan import Build, Outcome, Plan
from torchenv.plan.targets import explain_unsupported, plan_target
from torchenv.profile.model import Profile, Target
from torchenv.system.addresses import TorchIndex
from torchenv.system.disk import Disk
from torchenv.system.documents import nearest
from torchenv.system.process import side_by_side
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from tomlkit.items import InlineTable, Table

    WrittenTable = TypeVar("WrittenTable", Table, InlineTable)

Say = Callable[[str], None]


@frozen(kw_only=True)
class LockOrder:
    """What is to be locked, and who decides.

    `wanted` is what the profile and its files say of it, `carried` what is asked for beside torch, by target,
    `before` the locks there are, by target, and `same` says that they were made from the same. `upgrade`
    names packages that may become newer or be replaced, `upgrade_all` lets all become newer. `own_catalogue`
    is the file of the project's own catalogue, if it has one.
    Without `builds` nothing is built from source.
    """

    profile: Profile
    wanted: Mapping[str, Any]
    carried: Mapping[str, CarriedPackages]
    catalogue: Catalogue
    own_catalogue: str | None = None
    torch_index: TorchIndex | None = None
    package_index: str | None = None
    before: Mapping[str, Lock] = field(default_factory=dict)
    same: bool = False
    upgrade: frozenset[str] = frozenset()
    upgrade_all: bool = False
    only: frozenset[str] = frozenset()
    previous: LockSet | None = None
    builds: bool = True


@frozen(kw_only=True)
class Locked:
    """What was locked: the tie, the locks that were made now, and the targets whose index `failed`."""

    set: LockSet
    locks: Mapping[str, Lock]
    failed: Mapping[str, IndexFailed] = field(default_factory=dict)

    @property
    def kept(self) -> frozenset[str]:
        """The targets that have a lock in the end, made now or before."""
        return frozenset(target.name for target in self.set.targets if target.lock)

    @property
    def decided(self) -> frozenset[str]:
        """The targets that were decided, now or before, with a lock or without."""
        return frozenset(target.name for target in self.set.targets)

    def notes(self) -> Iterator[str]:
        """Describe what will not last: development builds vanish from their indexes."""
        for target, lock in self.locks.items():
            yield from (f"{target}: {note}" for note in expiring(lock))


def lock(order: LockOrder, installer: Installer, say: Say) -> Locked:
    """Decide for every target, then choose its packages, all side by side; nothing is written.

    An index that lacks something stops only the targets that need it, unless it stops all. Raises
    `NothingSuits` where a target cannot be met, `ToolFailed` where an index serves another file under a name
    that was locked before.
    """
    if not order.profile.targets:
        raise InputError(
            "the profile has no [[target]] to lock",
            hint="run `torchenv probe -o node.json`, then `torchenv lock --host node.json`",
        )
    _refuse_unknown(order)
    plans = decide_targets(order)
    buildable = [target for target in _select(order) if plans[target.name].build is not None]
    say(f"locking {', '.join(target.name for target in buildable)}")
    tasks = [partial(_try_target, target, plans[target.name], order, installer) for target in buildable]
    answers = dict(zip((target.name for target in buildable), side_by_side(tasks), strict=True))
    locks = {name: answer for name, answer in answers.items() if isinstance(answer, Lock)}
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, IndexFailed)}
    if failed and not locks:
        raise next(iter(failed.values()))
    for name, made in locks.items():
        _refuse_replaced(name, made, order)
    made_now = locks.keys() | {name for name, plan in plans.items() if plan.build is None}
    before = {target.name: target for target in order.previous.targets} if order.previous else {}
    targets = tuple(
        _target(target, plans[target.name], locks.get(target.name), order)
        if target.name in made_now
        else before[target.name]
        for target in order.profile.targets
        if target.name in made_now or target.name in before
    )
    # While a target still stands as it was wanted before, that is what the tie holds.
    stands = order.previous is not None and any(target.name not in made_now for target in targets)
    wanted = order.previous.wanted if order.previous is not None and stands else order.wanted
    tie = LockSet(wanted=wanted, catalogue=order.own_catalogue, targets=targets)
    return Locked(set=tie, locks=locks, failed=failed)


def _select(order: LockOrder) -> tuple[Target, ...]:
    names = [target.name for target in order.profile.targets]
    for name in sorted(order.only - set(names)):
        hint = nearest(name, names) or f"use one of {', '.join(names)}"
        raise InputError(f"target `{name}` not found", hint=hint)
    return tuple(target for target in order.profile.targets if not order.only or target.name in order.only)


def decide_targets(order: LockOrder) -> dict[str, Plan]:
    """Decide for every target; raises `NothingSuits` with the reasons where one cannot be met."""
    plans = {}
    for target in order.profile.targets:
        more = companions(order.carried[target.name], target.platform)
        plan = plan_target(
            target,
            order.profile,
            order.catalogue,
            packages=tuple(dict.fromkeys((*order.profile.torch.packages, *more))),
            torch_index=order.torch_index,
        )
        if plan.build is None and explain_unsupported(plan) is None:
            raise NothingSuits(f"target {target.name}: {'; '.join(plan.why)}", hint=plan.hint)
        plans[target.name] = plan
    return plans


def decision(plan: Plan) -> Decided:
    """Return what a target gets, as the lock's file says it: wheels of the package index carry no label."""
    build = plan.build
    if build is None:
        return None, None
    return (build.torch if build.index else str(build.release.version)), build.backend.tag


def write(directory: Path, locked: Locked, removed: Sequence[str], disk: Disk) -> None:
    """Put the locks in place and at last what ties them; those of the `removed` targets are deleted."""
    for name, made in locked.locks.items():
        disk.put(directory / lock_file(name), made.text)
    disk.put(directory / FILE, locked.set.to_toml())
    for name in removed:
        disk.delete(directory / lock_file(name))


def add_targets(text: str, targets: tuple[Target, ...]) -> str:
    """Write targets into the text of a `torchenv.toml`, whose comments and order stay."""
    import tomlkit
    from tomlkit.items import AoT, Array

    document = tomlkit.parse(text)
    listed = document.get("target")
    if isinstance(listed, Array):
        # target = [{ name = "a", … }]
        for target in targets:
            listed.add_line(_write_target(target, tomlkit.inline_table()))
        return tomlkit.dumps(document)
    if not isinstance(listed, AoT):
        listed = tomlkit.aot()
        document.append("target", listed)
    for target in targets:
        listed.append(_write_target(target, tomlkit.table()))
    return tomlkit.dumps(document)


def _write_target(target: Target, table: WrittenTable) -> WrittenTable:
    """Write a target into an empty table, its name first."""
    table.add("name", target.name)
    table.add("platform", target.platform)
    table.add("python", target.python)
    if target.backend is not None:
        table.add("backend", target.backend)
    if target.torch is not None:
        table.add("torch", target.torch)
    return table


def _try_target(target: Target, plan: Plan, order: LockOrder, installer: Installer) -> Lock | IndexFailed:
    try:
        return _lock_target(target, plan, order, installer)
    except IndexFailed as error:
        return error


def _lock_target(target: Target, plan: Plan, order: LockOrder, installer: Installer) -> Lock:
    build = plan.build
    assert build is not None
    carried, python = order.carried[target.name], target.python.rstrip("t")
    try:
        refuse_conflicts(carried, build.requirements, platform=target.platform, python=python)
    except NothingSuits as error:
        raise NothingSuits(f"target {target.name}: {error.message}", hint=error.hint) from None
    free_threaded = target.python.endswith("t")
    before = order.before.get(target.name)
    request = LockRequest(
        requirements=build.requirements,
        torch_index=build.index,
        package_index=order.package_index,
        family=order.catalogue.family | frozenset(build.backend.family),
        python=target.python.rstrip("t"),
        free_threaded=free_threaded,
        # Only an interpreter without the GIL tells of the tags of its wheels.
        interpreter=installer.fetch_python(target.python) if free_threaded else None,
        platform=target.platform,
        macos=str(build.release.macos.installs),
        exclude_newer=order.profile.packages.exclude_newer,
        kept=before.text if before and not order.upgrade_all else None,
        upgrade=order.upgrade,
        bound=_collect_torch_packages(before, build) if before and order.same else frozenset(),
        private=order.profile.index.private,
        builds=order.builds,
    )
    try:
        chosen, settled = lock_with(carried, request, installer)
    except TorchenvError as error:
        error.args = (f"target {target.name}: {error.message}",)
        error.message = error.args[0]
        silent = error.silent if isinstance(error, IndexFailed) else None
        if build.index is not None and silent is not None and silent.startswith(build.index):
            other = 'give the target index = "packages" to take the package index\'s build'
            error.hint = f"{error.hint}\n{other}"
        raise
    lost = [str(package) for package in settled if not package.is_same_version]
    about: dict[str, Any] = {"target": target.name, "torch": build.torch, "backend": build.backend.tag}
    if carried.local:
        about["local"] = sorted(write_local(folder) for folder in carried.local)
    because = (*_because(target, plan, order.catalogue), *lost)
    return chosen.with_tool("torchenv", {**about, **({"because": list(because)} if because else {})})


def _collect_torch_packages(before: Lock, build: Build) -> frozenset[str]:
    """Return the packages of torch's index that the same torch was known to bring."""
    if before.versions.get("torch") != build.torch:
        return frozenset()
    return frozenset(package.name for package in before.packages if package.index == build.index)


def _target(target: Target, plan: Plan, made: Lock | None, order: LockOrder) -> LockedTarget:
    torch, backend = decision(plan)
    known = LockedTarget(name=target.name, platform=target.platform, python=target.python, index=target.index)
    if plan.build is None or made is None:
        return replace(known, unsupported=explain_unsupported(plan))
    return replace(
        known,
        torch=torch,
        backend=backend,
        lock=made.digest,
        because=_because(target, plan, order.catalogue),
    )


def _because(target: Target, plan: Plan, catalogue: Catalogue) -> tuple[str, ...]:
    if plan.outcome is not Outcome.FALLBACK or plan.build is None:
        return ()
    wanted, taken = catalogue.matching(plan.requested)[0], plan.build
    held = f"{taken.backend.tag} is held at {taken.release.line}.x"
    if target.backend is not None and wanted.backend(target.backend) is None:
        return (f"{held} because torch {wanted.version} is not built for {target.backend}",)
    return (f"{held} because {plan.why[0]}", *plan.why[1:])


def _refuse_unknown(order: LockOrder) -> None:
    """Refuse to upgrade what no lock holds and nobody asks for: a name that is misspelt upgrades nothing."""
    asked = {
        name_of(requirement.requirement)
        for carried in order.carried.values()
        for requirement in (*carried.requirements, *carried.family, *carried.constraints)
    }
    locked = {package.name for lock in order.before.values() for package in lock.packages}
    for name in sorted(order.upgrade - asked - locked):
        hint = nearest(name, asked | locked) or "name a package of a lock file"
        raise InputError(f"package `{name}` is in no lock file", hint=hint)


def _refuse_replaced(target: str, made: Lock, order: LockOrder) -> None:
    """An index may add files and drop them; one that changes under its name is not to be trusted."""
    known = {
        (package.index, file.name): file.sha256
        for lock in order.before.values()
        for package in lock.packages
        for file in package.files
    }
    own = order.before.get(target)
    by_name = {file.name: file.sha256 for package in own.packages for file in package.files} if own else {}
    for package in made.packages:
        for file in package.files:
            was = by_name.get(file.name, known.get((package.index, file.name), file.sha256))
            if was != file.sha256 and package.name not in order.upgrade:
                raise ToolFailed(
                    f"target {target}: {file.name} is not the file that was locked:"
                    f" expected sha256 {was}, got {file.sha256}",
                    hint="find out why the index replaced it before you trust it, then"
                    f" run `torchenv lock --upgrade {package.name}`",
                )
