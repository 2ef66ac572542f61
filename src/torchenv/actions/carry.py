"""Lock what is carried over: at the same versions where they resolve, else newer, else without."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchenv.environment.inspect import Installation, canonical, distributions
from torchenv.errors import NothingSuits, PackagesConflict, Unobtainable
from torchenv.index.pages import Fetch, project
from torchenv.index.together import ask_together
from torchenv.installers import Installer, LockRequest, name_of
from torchenv.lockfile.lock import Lock
from torchenv.packages import Bound, CarriedPackages, Wanted, find_bound_to_torch, following
from torchenv.plan import Build
from torchenv.system.values import frozen


@frozen(kw_only=True)
class Settled:
    """What became of a package that was wanted: `now` is its version in the lock, None if it is not there.

    `why` is the reason where it is not the version that was wanted.
    """

    name: str
    version: str
    now: str | None
    why: str | None = None

    @property
    def is_same_version(self) -> bool:
        """Whether it is carried over at the same version."""
        return self.now is not None and (
            self.now == self.version or Version(self.now) == Version(self.version)
        )

    def __str__(self) -> str:
        if self.now is None:
            return f"{self.name} {self.version} left out: {self.why}"
        if self.is_same_version:
            return f"{self.name} {self.version} at the same version"
        return f"{self.name} {self.version} → {self.now}: {self.why}"


def summarise(settled: Sequence[Settled]) -> Iterator[str]:
    """Yield in lines what became of packages: how many stay as they are, and each that does not."""
    changed = [package for package in settled if not package.is_same_version]
    count = len(settled) - len(changed)
    same = f"{count} package{'' if count == 1 else 's'} kept at the same version{'' if count == 1 else 's'}"
    if not changed:
        if settled:
            yield same
        return
    yield f"{same}, {len(changed)} changed:"
    yield from (f"  {package}" for package in changed)


def lock_with(
    carried: CarriedPackages, request: LockRequest, installer: Installer
) -> tuple[Lock, tuple[Settled, ...]]:
    """Lock torch's family with all that is carried, giving way only where what is wanted does not resolve.

    What `carried.requirements` and constraints ask for never gives way. Whoever the installer names when it
    refuses is asked for less strictly; where it names none that can give way, all do that still may without
    being left out. Raises what the installer raises where none can.
    """
    fixed = replace(
        request,
        packages=(*request.packages, *(requirement.requirement for requirement in carried.requirements)),
        constraints=(*request.constraints, *(constraint.requirement for constraint in carried.constraints)),
        overrides=(*request.overrides, *(override.requirement for override in carried.overrides)),
        asked_by={name_of(asked.requirement): asked.source for asked in carried.requirements},
    )
    asking = [_Asking(item, item.asks) for item in carried.wanted]
    while True:
        packages = (*fixed.packages, *(item.left[0] for item in asking if item.left))
        try:
            lock = installer.lock(replace(fixed, packages=packages))
        except (PackagesConflict, Unobtainable) as refusal:
            asking = _relax(asking, refusal)
            continue
        _refuse_other_torch(lock, fixed)
        sources = _sources_alone(asking, lock)
        if not sources:
            return lock, tuple(_settle(item, lock) for item in asking)
        lacks = f"no wheel for Python {request.python} on {request.platform}"
        asking = [
            item.less(f"{item.wanted.version} has {lacks}") if item in sources else item for item in asking
        ]


def _refuse_other_torch(lock: Lock, request: LockRequest) -> None:
    """Refuse a lock whose torch is not the one that was planned, whoever among the packages chose another."""
    planned = {canonical(wanted.name): wanted.specifier for wanted in map(Requirement, request.requirements)}
    has_indexes = any(package.index for package in lock.packages)
    for package in lock.packages:
        wanted = planned.get(package.name)
        where = f" from {package.files[0].url}" if package.files else " from a repository"
        is_other = wanted is not None and not _is_planned(package.version, wanted, request)
        # A direct address, or an index that a package brought along.
        is_of_family = package.name in request.family | planned.keys()
        is_foreign = is_of_family and has_indexes and package.index is None
        if is_other or is_foreign:
            plan = f", and the plan has {package.name}{wanted}" if is_other else ""
            raise NothingSuits(
                f"a package asks for {package.name} {package.version or ''}{where} itself{plan}",
                hint=f"leave out the package that asks for {package.name} from that address",
            )


def _is_planned(version: str | None, wanted: SpecifierSet, request: LockRequest) -> bool:
    if version is None or not wanted.contains(version, prereleases=True):
        return False
    # On the package index nothing has a label: one that has is from somewhere else.
    return request.torch_index is not None or Version(version).local is None


def list_bound_to_old_torch(
    carried: CarriedPackages,
    installation: Installation,
    build: Build,
    *,
    platform: str,
    index: str | None,
    fetch: Fetch,
) -> CarriedPackages:
    """List what was compiled against the torch of an environment and cannot follow to the planned one.

    What has something newer with a wheel that fits on the package index `index` is asked for at that instead;
    None asks no index. Raises `ToolFailed` where the index does not answer.
    """
    planned = {
        canonical(requirement.name): requirement for requirement in map(Requirement, build.requirements)
    }
    versions = {name: next(iter(requirement.specifier)).version for name, requirement in planned.items()}
    bound = find_bound_to_torch(distributions(installation), installation.torch, versions)
    asked = [item for item in bound if item.path is None] if index else []
    newer = _newer(asked, index or "", build.python.minor, platform, fetch) if asked else {}
    return following(carried, bound, newer, index or "")


@frozen
class _Asking:
    """What is still left to ask for a package, and why it came to that."""

    wanted: Wanted
    left: tuple[str, ...]
    why: str | None = None

    def less(self, why: str) -> _Asking:
        return _Asking(self.wanted, self.left[1:], self.why or why)


def _relax(asking: list[_Asking], refusal: PackagesConflict | Unobtainable) -> list[_Asking]:
    named = [item for item in asking if item.left and canonical(item.wanted.name) in refusal.packages]
    yielding = named or [item for item in asking if len(item.left) > 1]
    if not yielding:
        raise refusal
    return [item.less(refusal.message) if item in yielding else item for item in asking]


def _sources_alone(asking: list[_Asking], lock: Lock) -> list[_Asking]:
    """Return what was locked at the wanted version as sources alone; a newer one may have a wheel."""
    sources = {
        package.name
        for package in lock.packages
        if package.files and not any(file.name.endswith(".whl") for file in package.files)
    }
    return [
        item
        for item in asking
        if item.left == item.wanted.asks and len(item.left) > 1 and item.wanted.name in sources
    ]


def _settle(asking: _Asking, lock: Lock) -> Settled:
    wanted = asking.wanted
    present = {package.name: package.version for package in lock.packages}
    if wanted.name not in present:
        return Settled(
            name=wanted.name,
            version=wanted.version,
            now=None,
            why=asking.why or "it is not for this platform",
        )
    # What comes from a repository has no version in a lock; it is the commit that was asked for.
    now = present[wanted.name] or wanted.version
    settled = Settled(name=wanted.name, version=wanted.version, now=now, why=asking.why)
    return replace(settled, why=None) if settled.is_same_version else settled


def _newer(
    bound: Iterable[Bound], index: str, python: str, platform: str, fetch: Fetch
) -> dict[str, str | None]:
    def newest(package: Bound) -> str | None:
        page = project(index, package.name, fetch)
        fitting = (wheel.version for wheel in (page.wheels if page else ()) if wheel.fits(python, platform))
        found = [
            version for version in fitting if version > Version(package.version) and not version.is_prerelease
        ]
        return str(max(found)) if found else None

    bound = list(bound)
    return dict(zip((package.name for package in bound), ask_together(newest, bound), strict=True))
