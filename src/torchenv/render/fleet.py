"""A fleet as people read it: a line for each kind of machine and for each reason, and the fewest targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchenv.plan.fleet import Fleet, HostKind, Member
from torchenv.render.environment import columns


def describe_fleet(fleet: Fleet) -> str:
    """Describe what each kind of machine gets and why, and the fewest targets that support them all."""
    return "\n".join(_lines(fleet))


# A kind or a reason names this many of its machines; --json has all.
_SHOWN = 4


def name_members(members: Sequence[Member]) -> str:
    """Name the first few machines and count the others."""
    more = f" and {len(members) - _SHOWN} more" if len(members) > _SHOWN else ""
    return ", ".join(member.name for member in members[:_SHOWN]) + more


def group_by_reason(members: Sequence[Member]) -> dict[tuple[str, str | None], list[Member]]:
    """Return machines by why they get what they get, and what would let them have more."""
    groups: dict[tuple[str, str | None], list[Member]] = {}
    for member in members:
        groups.setdefault((member.reason, member.opens), []).append(member)
    return groups


def _lines(fleet: Fleet) -> Iterator[str]:
    kinds: dict[HostKind | None, list[Member]] = {}
    for member in fleet.members:
        kinds.setdefault(member.kind, []).append(member)
    rows = [("hosts", "target", "torch", "backend", "names")]
    for kind, members in kinds.items():
        decided = (kind.name, str(kind.release), kind.backend) if kind else ("none", "-", "-")
        rows.append((str(len(members)), *decided, name_members(members)))
    head, *table = columns(rows).splitlines()
    yield head
    for line, members in zip(table, kinds.values(), strict=True):
        yield line
        for (reason, opens), same in group_by_reason(members).items():
            if not same[0].is_as_requested:
                yield f"  {name_members(same)}: {reason}"
            if opens:
                yield f"    {opens}"
    if fleet.targets:
        what = "them all" if not fleet.unserved else "the others"
        yield f"the fewest targets that support {what}: {len(fleet.targets)}"
        for target in fleet.targets:
            served = [member for member in fleet.members if member.served_by == target]
            held = [member for member in served if member.is_held_back]
            back = f", and holds back {name_members(held)}" if held else ""
            yield f"  {target} supports {name_members(served)}{back}"
