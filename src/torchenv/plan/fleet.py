"""One decision for many machines: what each needs, and the fewest targets that serve them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

from packaging.version import Version

from torchenv.catalogue import Catalogue
from torchenv.host.model import Host
from torchenv.lockfile.lockset import LockedTarget
from torchenv.plan.choice import resolve
from torchenv.plan.targets import Fit, fits, plan_target
from torchenv.plan.values import Plan, Question, Wish
from torchenv.profile.model import Profile, Target
from torchenv.system.values import frozen

SCHEMA = "torchenv.fleet/1"


@frozen
class HostKind:
    """A kind of machine as a target would name it, and the release that it gets.

    `line` is the line that its target must name, where the backend alone would give a newer release.
    """

    platform: str
    python: str
    backend: str
    release: Version
    line: str | None = None

    @property
    def name(self) -> str:
        """A name that may be part of a file's name: `rocm7-14`, `cu132-windows-x86-64`, `cpu-2-14`."""
        where = None if self.platform == "linux-x86_64" else self.platform
        parts = [item for item in (self.backend, where, self.line) if item]
        return "-".join(parts).replace(".", "-").replace("_", "-")

    @property
    def target(self) -> Target:
        """The target that stands for it in a profile."""
        return Target(
            name=self.name,
            platform=self.platform,
            python=self.python,
            backend=self.backend,
            torch=self.line,
        )

    def __str__(self) -> str:
        return f"{self.name} (torch {self.release}, {self.platform}, Python {self.python})"


@frozen
class Member:
    """A machine of the fleet: its own plan and kind, and of the fewest targets the one that serves it."""

    name: str
    plan: Plan
    kind: HostKind | None
    served_by: HostKind | None

    @property
    def is_held_back(self) -> bool:
        """Whether the fewest targets give it an older release than it could have."""
        return bool(self.kind and self.served_by and self.served_by.release < self.kind.release)

    @property
    def reason(self) -> str:
        """Why it gets what it gets, in a line."""
        if self.plan.why:
            return self.plan.why[0]
        return "as requested"

    @property
    def opens(self) -> str | None:
        """What would let it have the release that was asked for, such as a newer driver."""
        return self.plan.opens


@frozen
class Fleet:
    """The machines in the order in which they were named, and the fewest targets that serve them."""

    members: tuple[Member, ...]
    targets: tuple[HostKind, ...]

    @property
    def unserved(self) -> tuple[Member, ...]:
        """The machines that nothing serves."""
        return tuple(member for member in self.members if member.kind is None)

    def to_document(self) -> dict[str, Any]:
        """Return the `torchenv.fleet/1` document."""
        return {
            "schema": SCHEMA,
            "hosts": [_row(member) for member in self.members],
            "targets": [
                {
                    "name": item.name,
                    "platform": item.platform,
                    "python": item.python,
                    "backend": item.backend,
                    "torch": str(item.release),
                    "serves": [member.name for member in self.members if member.served_by == item],
                    "holds_back": [
                        member.name
                        for member in self.members
                        if member.served_by == item and member.is_held_back
                    ],
                }
                for item in self.targets
            ],
        }


def fleet(hosts: Mapping[str, Host], wish: Wish, catalogue: Catalogue) -> Fleet:
    """Decide for each machine, then find the fewest of the kinds needed that serve all of them together."""
    asks = {name: Question(host=host, wish=wish, catalogue=catalogue) for name, host in hosts.items()}
    plans = {name: resolve(ask) for name, ask in asks.items()}
    own = {name: _kind(plan, asks[name]) for name, plan in plans.items()}
    kinds = _share_pythons({name: kind for name, kind in own.items() if kind}, asks)
    # The newest first, so that of two sets of one size the newer is found; by name in the end, so that the
    # order in which the machines are named decides nothing.
    candidates = sorted(set(kinds.values()), key=_age, reverse=True)
    serves = {
        kind: frozenset(name for name in kinds if kinds[name] == kind or _serves(kind, asks[name]))
        for kind in candidates
    }
    targets = _fewest(serves, frozenset(kinds))
    return Fleet(
        tuple(
            Member(name, plans[name], kinds.get(name), _choose(name, kinds.get(name), targets, serves))
            for name in hosts
        ),
        targets,
    )


def list_missing_targets(
    found: Fleet,
    hosts: Mapping[str, Host],
    profile: Profile,
    wish: Wish,
    catalogue: Catalogue,
    *,
    fewest: bool = False,
) -> tuple[Target, ...]:
    """Return the targets that machines need and that a profile does not have yet.

    A target that fits a machine is used, whatever it is called and wherever its torch comes from, unless the
    machine could have a newer release; with `fewest` also then, and new ones are as few as serve the rest.
    """
    locked = tuple(_as_locked(target, profile, wish, catalogue) for target in profile.targets)
    left = [
        member
        for member in found.members
        if member.kind is not None
        and not any(
            fewest or Version(fit.target.torch or "0").public == str(member.kind.release)
            for fit in _list_fits(locked, Question(host=hosts[member.name], wish=wish, catalogue=catalogue))
        )
    ]
    if not fewest:
        needed = {member.kind for member in left if member.kind}
    else:
        rest = fleet({member.name: hosts[member.name] for member in left}, wish, catalogue)
        needed = set(rest.targets)
    taken = {target.name for target in profile.targets}
    return tuple(
        _rename(kind.target, taken) for kind in sorted(needed, key=lambda kind: (kind.name, kind.python))
    )


def _as_locked(target: Target, profile: Profile, wish: Wish, catalogue: Catalogue) -> LockedTarget:
    """Return a target of a profile as it will be locked; one that nothing is built for has no torch."""
    plan = plan_target(
        target, profile, catalogue, packages=profile.torch.packages, torch_index=wish.torch_index
    )
    known = LockedTarget(name=target.name, platform=target.platform, python=target.python, index=target.index)
    build = plan.build
    if build is None:
        return known
    return replace(known, torch=str(build.release.version), backend=build.backend.tag)


def _list_fits(locked: Sequence[LockedTarget], ask: Question) -> list[Fit]:
    """Return the targets that are made for a machine and that it can use."""
    found = fits(locked, ask, torch_index=ask.wish.torch_index)
    return [
        fit
        for fit in found
        if fit.fits and fit.is_made_for_it and fit.plan.build is not None and not fit.plan.build.unproven
    ]


def _rename(target: Target, taken: set[str]) -> Target:
    """Return a target under a name that no other has, and remember it."""
    name, number = target.name, 1
    while name in taken:
        number += 1
        name = f"{target.name}-{number}"
    taken.add(name)
    return replace(target, name=name)


def _share_pythons(kinds: Mapping[str, HostKind], asks: Mapping[str, Question]) -> dict[str, HostKind]:
    """Assign to machines that differ in nothing but their Python the one that most of them have.

    One that cannot have it keeps its own. Of two that are as common the older is taken.
    """
    groups: dict[HostKind, list[str]] = {}
    for name in sorted(kinds):
        groups.setdefault(replace(kinds[name], python=""), []).append(name)
    shared: dict[str, HostKind] = {}
    for group, names in groups.items():
        common = Counter(kinds[name].python for name in names)
        order = sorted(common, key=lambda python: (-common[python], _minor(python)))
        for name in names:
            choices = (replace(group, python=python) for python in order)
            shared[name] = next(kind for kind in choices if kind == kinds[name] or _serves(kind, asks[name]))
    return shared


def _minor(python: str) -> tuple[Version, bool]:
    return Version(python.rstrip("t")), python.endswith("t")


# Beyond this many kinds all sets of them are too many to try.
_ALL_SETS = 14


def _fewest(serves: Mapping[HostKind, frozenset[str]], everyone: frozenset[str]) -> tuple[HostKind, ...]:
    kinds = list(serves)
    if len(kinds) > _ALL_SETS:
        return _greedily(serves, everyone)
    sets = chain.from_iterable(combinations(kinds, size) for size in range(len(kinds) + 1))
    return next(item for item in sets if everyone <= frozenset().union(*(serves[kind] for kind in item)))


def _greedily(serves: Mapping[HostKind, frozenset[str]], everyone: frozenset[str]) -> tuple[HostKind, ...]:
    left, taken = everyone, []
    while left:
        best = max(serves, key=lambda kind: len(serves[kind] & left))
        taken.append(best)
        left -= serves[best]
    return tuple(taken)


def _kind(plan: Plan, ask: Question) -> HostKind | None:
    build = plan.build
    if build is None:
        return None
    wanted = ask.catalogue.matching(ask.wish.version)[0]
    held = build.release != wanted and wanted.backend(build.backend.tag) is not None
    return HostKind(
        platform=ask.host.platform,
        python=build.python.minor,
        backend=build.backend.tag,
        release=build.release.version,
        line=build.release.line if held else None,
    )


def _age(kind: HostKind) -> tuple[object, ...]:
    return kind.release, kind.backend, kind.platform, _minor(kind.python)


def _serves(kind: HostKind, ask: Question) -> bool:
    if kind.platform != ask.host.platform:
        return False
    wish = replace(
        ask.wish,
        version=str(kind.release),
        backends=(kind.backend,),
        python=kind.python,
        free_threaded=kind.python.endswith("t"),
        fallback=False,
    )
    build = resolve(replace(ask, wish=wish)).build
    # A build for devices that a machine does not have serves it as little as one it cannot run.
    return build is not None and build.backend.tag == kind.backend and not build.unproven


def _choose(
    name: str, own: HostKind | None, targets: Sequence[HostKind], serves: Mapping[HostKind, frozenset[str]]
) -> HostKind | None:
    if own in targets:
        return own
    return next((item for item in targets if name in serves[item]), None)


def _row(member: Member) -> dict[str, Any]:
    return {
        "host": member.name,
        "outcome": member.plan.outcome.value,
        "torch": str(member.kind.release) if member.kind else None,
        "backend": member.kind.backend if member.kind else None,
        "target": member.kind.name if member.kind else None,
        "reason": member.reason,
        "opens": member.opens,
    }
