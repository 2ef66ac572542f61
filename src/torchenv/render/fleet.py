"""A fleet as people read it: a table, the fewest targets, and what would open more."""

from __future__ import annotations

from collections.abc import Iterator

from torchenv.plan.fleet import Fleet
from torchenv.render.environment import columns


def describe_fleet(fleet: Fleet) -> str:
    """Describe what each machine gets and why, and the fewest targets that support them all."""
    return "\n".join(_lines(fleet))


def _lines(fleet: Fleet) -> Iterator[str]:
    rows = [("host", "torch", "backend", "target", "reason")]
    for member in fleet.members:
        kind = member.kind
        decided = (str(kind.release), kind.backend, kind.name) if kind else ("none", "-", "-")
        rows.append((member.name, *decided, member.reason))
    yield columns(rows)
    if fleet.targets:
        count = len(fleet.targets)
        yield f"the fewest targets that support {'them all' if not fleet.unserved else 'the others'}: {count}"
        for kind in fleet.targets:
            served = [member for member in fleet.members if member.served_by == kind]
            held = [item.name for item in served if item.is_held_back]
            back = f", and holds back {', '.join(held)}" if held else ""
            yield f"  {kind} supports {', '.join(item.name for item in served)}{back}"
    for member in fleet.members:
        if member.opens:
            yield f"{member.name}: {member.opens}"
