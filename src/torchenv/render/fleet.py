"""A fleet as people read it: a line for each kind of machine, the fewest targets, and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from torchenv.plan.fleet import Fleet, Member
from torchenv.render.environment import columns

T = TypeVar("T")

# Names of machines in a line; the document has all of them.
_SHOWN = 4


def describe_fleet(fleet: Fleet) -> str:
    """Describe what each kind of machine gets, the fewest targets that serve all, and why it is not more."""
    return "\n".join(_lines(fleet))


def _lines(fleet: Fleet) -> Iterator[str]:
    rows = [("hosts", "torch", "backend", "target", "which")]
    for kind, members in _group(fleet.members, lambda member: member.kind).items():
        decided = (str(kind.release), kind.backend, kind.name) if kind else ("none", "-", "-")
        rows.append((str(len(members)), *decided, _name(members)))
    yield columns(rows)
    if fleet.targets:
        count = len(fleet.targets)
        yield f"the fewest targets that serve {'them all' if not fleet.unserved else 'the others'}: {count}"
        for target in fleet.targets:
            served = [member for member in fleet.members if member.served_by == target]
            held = [member for member in served if member.is_held_back]
            back = f", and holds back {_name(held)}" if held else ""
            yield f"  {target} serves {_name(served)}{back}"
    short = [member for member in fleet.members if member.plan.why]
    if short:
        yield "not the newest:"
    for reason, members in _group(short, lambda member: member.reason).items():
        yield f"  {_count(members)}: {reason}"
    opened = [member for member in fleet.members if member.opens]
    for opens, members in _group(opened, lambda member: member.opens).items():
        yield f"{_count(members)}: {opens}"


def _group(members: Sequence[Member], key: Callable[[Member], T]) -> Mapping[T, list[Member]]:
    groups: dict[T, list[Member]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups


def _count(members: Sequence[Member]) -> str:
    return members[0].name if len(members) == 1 else f"{len(members)} hosts ({_name(members)})"


def _name(members: Sequence[Member]) -> str:
    names = [member.name for member in members]
    more = len(names) - _SHOWN
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:_SHOWN])} and {more} more"
