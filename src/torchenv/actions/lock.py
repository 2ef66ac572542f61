"""Lock every target of a project, on any machine, and say what has drifted since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torchenv.actions.carry import lock_with
from torchenv.actions.fetchable import expiring
from torchenv.catalogue import Catalogue
from torchenv.errors import InputError, NothingSuits, ToolFailed, TorchenvError
from torchenv.installers import Installer, LockRequest
from torchenv.lockfile.lock import Lock
from torchenv.lockfile.lockset import FILE, Decided, LockedTarget, LockSet, lock_file
from torchenv.packages import CarriedPackages, companions, refuse_conflicts
from torchenv.plan import Outcome, Plan
from torchenv.plan.targets import explain_unsupported, plan_target
from torchenv.profile.model import Profile, Target
from torchenv.system.addresses import TorchIndex
from torchenv.system.disk import Disk
from torchenv.system.process import side_by_side

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class LockOrder:
    """What is to be locked, and who decides.

    `wanted` is what the profile's file says of it, `carried` what is asked for beside torch, `before` the
    locks there are, by target, and `same` says that they were made from the same. `upgrade` names packages
    that may become newer; None means all of them.
    """

    profile: Profile
    wanted: Mapping[str, Any]
    carried: CarriedPackages
    catalogue: Catalogue
    catalogue_digest: str
    uv: str
    torch_index: TorchIndex | None = None
    package_index: str | None = None
    before: Mapping[str, Lock] = field(default_factory=dict)
    same: bool = False
    upgrade: frozenset[str] | None = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Locked:
    """What was locked: the tie, and the lock of each target that there is one for."""

    set: LockSet
    locks: Mapping[str, Lock]

    def notes(self) -> Iterator[str]:
        """Describe what will not last: development builds vanish from their indexes."""
        for target, lock in self.locks.items():
            yield from (f"{target}: {each}" for each in expiring(lock))


def lock(order: LockOrder, installer: Installer, say: Say) -> Locked:
    """Decide for every target, then choose its packages, all side by side; nothing is written.

    Raises `NothingSuits` where a target cannot be met, `ToolFailed` where an index serves another file under
    a name that was locked before.
    """
    if not order.profile.targets:
        raise InputError(
            f"{order.profile.name} names no target to lock",
            hint="write a [[target]] into torchenv.toml, or add those of recorded hosts with --host FILE",
        )
    plans = decide_targets(order)
    buildable = [each for each in order.profile.targets if plans[each.name].build is not None]
    say(f"locking {', '.join(each.name for each in buildable)}")
    tasks = [partial(_lock_target, each, plans[each.name], order, installer) for each in buildable]
    locks = dict(zip((each.name for each in buildable), side_by_side(tasks), strict=True))
    for name, made in locks.items():
        _refuse_replaced(name, order.before.get(name), made, order.upgrade)
    targets = tuple(
        _target(each, plans[each.name], locks.get(each.name), order) for each in order.profile.targets
    )
    tie = LockSet(
        wanted=order.wanted,
        catalogue=order.catalogue_digest,
        compiled=order.catalogue.compiled,
        uv=order.uv,
        targets=targets,
    )
    return Locked(set=tie, locks=locks)


def decide_targets(order: LockOrder) -> dict[str, Plan]:
    """Decide for every target; raises `NothingSuits` with the reasons where one cannot be met."""
    plans = {}
    for target in order.profile.targets:
        more = companions(order.carried, target.platform)
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


def write(directory: Path, locked: Locked, before: LockSet | None, disk: Disk) -> None:
    """Put the locks in place and at last what ties them; locks of targets that are gone are deleted."""
    for name, made in locked.locks.items():
        disk.put(directory / lock_file(name), made.text)
    disk.put(directory / FILE, locked.set.to_toml())
    for target in before.targets if before else ():
        if target.name not in locked.locks:
            disk.delete(directory / target.file)


def add_targets(text: str, targets: tuple[Target, ...]) -> str:
    """Write targets into the text of a `torchenv.toml`, whose comments and order stay."""
    import tomlkit
    from tomlkit.items import AoT

    document = tomlkit.parse(text)
    listed = document.get("target")
    if not isinstance(listed, AoT):
        listed = tomlkit.aot()
        document.append("target", listed)
    for target in targets:
        table = tomlkit.table()
        table.add("name", target.name)
        table.add("platform", target.platform)
        table.add("python", target.python)
        if target.backend is not None:
            table.add("backend", target.backend)
        if target.torch is not None:
            table.add("torch", target.torch)
        listed.append(table)
    return tomlkit.dumps(document)


def _lock_target(target: Target, plan: Plan, order: LockOrder, installer: Installer) -> Lock:
    build = plan.build
    assert build is not None
    refuse_conflicts(
        order.carried, build.requirements, platform=target.platform, python=target.python.rstrip("t")
    )
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
        kept=before.text if before and order.upgrade is not None else None,
        upgrade=order.upgrade or frozenset(),
        bound=_collect_torch_packages(before, build.index)
        if before and order.same and not order.upgrade
        else frozenset(),
    )
    try:
        chosen, settled = lock_with(order.carried, request, installer)
    except TorchenvError as error:
        error.args = (f"target {target.name}: {error.message}",)
        error.message = error.args[0]
        if build.index is not None and f"cannot reach {build.index}" in error.message:
            error.hint = f'{error.hint}; a target with index = "packages" takes the package index\'s build'
        raise
    lost = [str(each) for each in settled if not each.is_same_version]
    about = {"target": target.name, "torch": build.torch, "backend": build.backend.tag}
    because = (*_because(target, plan, order.catalogue), *lost)
    return chosen.with_tool("torchenv", {**about, **({"because": list(because)} if because else {})})


def _collect_torch_packages(before: Lock, torch_index: str | None) -> frozenset[str]:
    return frozenset(each.name for each in before.packages if each.index == torch_index)


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


def _refuse_replaced(target: str, before: Lock | None, made: Lock, upgrade: frozenset[str] | None) -> None:
    """An index may add files and drop them; one that changes under its name is not to be trusted."""
    known = (
        {file.name: file.sha256 for package in before.packages for file in package.files} if before else {}
    )
    for package in made.packages:
        for file in package.files:
            was = known.get(file.name, file.sha256)
            if was != file.sha256 and upgrade is not None and package.name not in upgrade:
                raise ToolFailed(
                    f"target {target}: {file.name} is not the file that was locked:"
                    f" expected sha256 {was}, got {file.sha256}",
                    hint="it was replaced on the index: find out why before you trust it, then"
                    f" take it with `torchenv lock --upgrade {package.name}`",
                )
