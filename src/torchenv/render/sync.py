"""Which locked target each machine of a fleet would take, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchenv.actions.sync import NodeTarget

SCHEMA = "torchenv.fleet/1"


def describe_nodes(nodes: Sequence[NodeTarget]) -> str:
    """Return for each machine the target that it would take, or why it takes none and what opens one."""
    lines = []
    for node in nodes:
        lines.append(f"{node.host}: {node.fit.target if node.fit else node.refusal}")
        if node.refusal and node.refusal.hint:
            lines.append(f"  {node.refusal.hint}")
    return "\n".join(lines)


def encode_nodes(nodes: Sequence[NodeTarget]) -> dict[str, Any]:
    """Return the `torchenv.fleet/1` document, whose targets are those that were locked."""
    taken = {node.fit.target.name: node.fit.target for node in nodes if node.fit}
    return {
        "schema": SCHEMA,
        "hosts": [
            {
                "host": node.host,
                "outcome": "as-requested" if node.fit else "blocked",
                "torch": node.fit and node.fit.target.torch,
                "backend": node.fit and node.fit.target.backend,
                "target": node.fit and node.fit.target.name,
                "reason": str(node.refusal) if node.refusal else "as locked",
                "opens": node.refusal.hint if node.refusal else None,
            }
            for node in nodes
        ],
        "targets": [
            {
                "name": target.name,
                "platform": target.platform,
                "python": target.python,
                "backend": target.backend,
                "torch": target.torch,
                "serves": [node.host for node in nodes if node.fit and node.fit.target is target],
                "holds_back": [],
            }
            for target in taken.values()
        ],
    }
