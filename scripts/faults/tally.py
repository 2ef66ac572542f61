"""What was tried and what failed, for the page on reliability."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field


class Broken(Exception):
    """What must hold does not."""


@dataclass
class Tally:
    """The tries of one kind; `failures` tell each what it was and what did not hold."""

    kind: str
    seed: int
    tries: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unheard: int = 0

    @contextmanager
    def trying(self, name: str, what: str) -> Iterator[None]:
        """Count a try of this name, and write down what did not hold in it."""
        self.tries[name] += 1
        try:
            yield
        except Broken as broken:
            self.failures.append(f"{what}: {broken}")
            print(f"FAILED {self.kind}: {self.failures[-1]}", flush=True)

    @property
    def count(self) -> int:
        return sum(self.tries.values())

    def to_json(self) -> str:
        """Write it down for another run."""
        return json.dumps({**asdict(self), "tries": dict(self.tries)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Tally:
        """Read what was written down."""
        document = json.loads(text)
        return cls(**{**document, "tries": Counter(document["tries"])})


def require(holds: object, what: str) -> None:
    """Raise `Broken` where something does not hold."""
    if not holds:
        raise Broken(what)
