"""One decision for many machines: what each needs, and the fewest targets that support them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, count
from typing import Any

from packaging.version import Version

from torchenv.catalogue.releases import Catalogue
from torchenv.host.model import Host
from torchenv.plan.choice import resolve
from torchenv.plan.targets import plan_target
from torchenv.plan.values import Plan, Question, Wish
from torchenv.profile.model import Profile, Target
from torchenv.system.addresses import TorchIndex
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
    def is_as_requested(self) -> bool:
        """Whether nothing stood in the way of what was asked for."""
        return not self.plan.why

    @property
    def reason(self) -> str:
        """Why it gets what it gets, in a line."""
        return "as requested" if self.is_as_requested else self.plan.why[0]

    @property
    def opens(self) -> str | None:
        """What would let it have the release that was asked for, such as a newer driver."""
        return self.plan.opens


@frozen
class Fleet:
    """The machines in the order in which they were named, and the fewest targets that support them.

    `existing` are the kinds that a profile has targets for: `targets` has only what they lack.
    """

    members: tuple[Member, ...]
    targets: tuple[HostKind, ...]
    existing: tuple[HostKind, ...] = ()

    @property
    def unserved(self) -> tuple[Member, ...]:
        """The machines that nothing serves."""
        return tuple(member for member in self.members if member.kind is None)

    def list_new_targets(self, taken: Iterable[str], *, is_fewest: bool) -> tuple[Target, ...]:
        """Return the targets to add, the same for any order of machines, under names that are not `taken`.

        By default each machine gets the newest that it can have; with `is_fewest` it gets what it can share.
        """
        had = {(kind.platform, kind.backend, kind.release) for kind in self.existing}
        wanted = self.targets if is_fewest else {member.kind for member in self.members if member.kind}
        names, new = set(taken), []
        for kind in sorted(wanted, key=lambda kind: (kind.name, kind.python)):
            if not is_fewest and (kind.platform, kind.backend, kind.release) in had:
                continue
            numbered = (f"{kind.name}-{number}" for number in count(2))
            name = next(name for name in chain([kind.name], numbered) if name not in names)
            names.add(name)
            new.append(
                Target(
                    name=name,
                    platform=kind.platform,
                    python=kind.python,
                    backend=kind.backend,
                    torch=kind.line,
                )
            )
        return tuple(new)

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


def fleet(
    hosts: Mapping[str, Host], wish: Wish, catalogue: Catalogue, *, existing: Sequence[HostKind] = ()
) -> Fleet:
    """Decide for each machine, then find the fewest of the kinds needed that serve all of them together.

    Machines that one of the `existing` kinds serves need none of the fewest.
    """
    # Of ten thousand machines most are alike but for when they were looked at; one of them stands for all.
    standing: dict[Host, str] = {}
    alike = {name: standing.setdefault(replace(host, captured_at=None), name) for name, host in hosts.items()}
    asks = {name: Question(host=host, wish=wish, catalogue=catalogue) for host, name in standing.items()}
    plans = {name: resolve(ask) for name, ask in asks.items()}
    own = {name: _kind(plan, asks[name]) for name, plan in plans.items()}
    machines = Counter(kind for one in alike.values() if (kind := own[one]))
    serves = {
        kind: frozenset(name for name, ask in asks.items() if own[name] and _serves(kind, ask))
        for kind in chain(machines, existing)
    }
    kinds = _agree_on_pythons(own, serves, machines)
    # The newest first, so that of two sets of one size the newer is found.
    candidates = sorted({kind for kind in kinds.values() if kind}, key=_age, reverse=True)
    everyone = frozenset(name for name, kind in kinds.items() if kind)
    rest = everyone.difference(*(serves[kind] for kind in existing))
    targets = _fewest({kind: serves[kind] for kind in candidates}, rest)
    known = (*targets, *existing)
    return Fleet(
        tuple(
            Member(name, plans[one], kinds[one], _choose(one, kinds[one], known, serves))
            for name, one in alike.items()
        ),
        targets,
        tuple(existing),
    )


def find_kinds(profile: Profile, catalogue: Catalogue, *, torch_index: TorchIndex | None) -> list[HostKind]:
    """Return what the targets of a profile are; those that no release serves are left out."""
    kinds = []
    for target in profile.targets:
        packages = profile.torch.packages
        build = plan_target(target, profile, catalogue, packages=packages, torch_index=torch_index).build
        if build is not None:
            kind = HostKind(
                platform=target.platform,
                python=target.python,
                backend=build.backend.tag,
                release=build.release.version,
                line=target.torch,
            )
            kinds.append(kind)
    return kinds


def _agree_on_pythons(
    own: Mapping[str, HostKind | None],
    serves: Mapping[HostKind, frozenset[str]],
    machines: Counter[HostKind],
) -> dict[str, HostKind | None]:
    """Return the kinds of machines; those that differ in Python alone share what most of them have."""

    def choose(name: str, kind: HostKind) -> HostKind:
        same = (other for other in machines if replace(other, python=kind.python) == kind)
        usable = [other for other in same if name in serves[other] or other == kind]
        return min(usable, key=lambda other: (-machines[other], _count(other.python)))

    return {name: kind and choose(name, kind) for name, kind in own.items()}


def _count(python: str) -> tuple[Version, str]:
    # 3.14t is 3.14, free-threaded.
    return Version(python.removesuffix("t")), python


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


def _age(kind: HostKind) -> tuple[Version, str, str, tuple[Version, str]]:
    return kind.release, kind.backend, kind.platform, _count(kind.python)


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
