"""One decision for many machines: what each needs, and the fewest targets that support them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

from packaging.version import Version

from torchenv.catalogue.releases import Catalogue
from torchenv.host.model import Host
from torchenv.plan.choice import resolve
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
    """The machines in the order in which they were named, and the fewest targets that support them."""

    members: tuple[Member, ...]
    targets: tuple[HostKind, ...]

    @property
    def unserved(self) -> tuple[Member, ...]:
        """The machines that nothing serves."""
        return tuple(member for member in self.members if member.kind is None)

    def list_missing_targets(self, profile: Profile) -> tuple[Target, ...]:
        """Return the targets that its machines need and that a profile does not have yet."""
        had = {(item.platform, item.backend, item.torch) for item in profile.targets}
        kinds = dict.fromkeys(member.kind for member in self.members if member.kind)
        new = {(kind.platform, kind.backend, kind.line): kind.target for kind in reversed(kinds)}
        return tuple(target for key, target in reversed(new.items()) if key not in had)

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
    # Of ten thousand machines most are alike but for when they were looked at; one of them stands for all.
    standing: dict[Host, str] = {}
    alike = {name: standing.setdefault(replace(host, captured_at=None), name) for name, host in hosts.items()}
    asks = {name: Question(host=host, wish=wish, catalogue=catalogue) for host, name in standing.items()}
    plans = {name: resolve(ask) for name, ask in asks.items()}
    kinds = {name: _kind(plan, asks[name]) for name, plan in plans.items()}
    # The newest first, so that of two sets of one size the newer is found.
    candidates = sorted({kind for kind in kinds.values() if kind}, key=_age, reverse=True)
    serves = {
        kind: frozenset(name for name, ask in asks.items() if kinds[name] and _serves(kind, ask))
        for kind in candidates
    }
    targets = _fewest(serves, frozenset(name for name, kind in kinds.items() if kind))
    return Fleet(
        tuple(
            Member(name, plans[one], kinds[one], _choose(one, kinds[one], targets, serves))
            for name, one in alike.items()
        ),
        targets,
    )


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


def _age(kind: HostKind) -> tuple[Version, str, str, str]:
    return kind.release, kind.backend, kind.platform, kind.python


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
