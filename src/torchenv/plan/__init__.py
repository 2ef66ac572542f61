"""The decision: what is built on a host, and why nothing else. Pure."""

from torchenv.plan.choice import resolve
from torchenv.plan.values import (
    Build,
    IndexFacts,
    Known,
    Lifeboat,
    Outcome,
    Plan,
    Question,
    Wish,
    pip_command,
)

__all__ = [
    "Build",
    "IndexFacts",
    "Known",
    "Lifeboat",
    "Outcome",
    "Plan",
    "Question",
    "Wish",
    "pip_command",
    "resolve",
]
