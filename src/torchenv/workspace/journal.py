"""How far an upgrade has come: a side file, so that one that was stopped anywhere goes on from there."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Literal, get_args

from torchenv.errors import WorkspaceError
from torchenv.system.values import frozen

SCHEMA = "torchenv.upgrade-journal/1"

Step = Literal["check", "create", "smoke", "evaluate", "keep", "switch"]
STEPS: tuple[Step, ...] = get_args(Step)


@frozen(kw_only=True)
class Journal:
    """One upgrade: what was asked for, from which environment to which, and the steps that are done.

    `old` is None where no environment was active, `new` until the new one is built. Environments numbered
    `first` and higher are the upgrade's own; one that was there before is used, and stays when the upgrade is
    taken back. `kept` are the lifeboats that the upgrade made. `started` is in UTC.
    """

    requested: str
    started: datetime
    old: int | None = None
    new: int | None = None
    first: int | None = None
    done: tuple[Step, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def has_built(self) -> bool:
        """Whether the upgrade itself built the new environment."""
        return self.new is not None and self.first is not None and self.new >= self.first

    @property
    def next(self) -> Step | None:
        """The first step that is not done; None once the new environment is active."""
        return next((step for step in STEPS if step not in self.done), None)

    def finish(self, step: Step, **changes: Any) -> Journal:
        """Record a step as done."""
        return replace(self, done=(*self.done, step), **changes)

    def write(self) -> str:
        """Write the document."""
        document = {"schema": SCHEMA, **asdict(self), "started": self.started.isoformat()}
        return json.dumps(document, indent=2) + "\n"

    @classmethod
    def parse(cls, text: str, source: str) -> Journal:
        """Read the document; raises `WorkspaceError` where it is damaged or of a later torchenv."""
        try:
            return cls._read(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise WorkspaceError(
                f"`{source}` is damaged, or of a later torchenv",
                hint="start again with `torchenv upgrade --restart`",
            ) from None

    @classmethod
    def _read(cls, document: dict[str, Any]) -> Journal:
        if document.pop("schema") != SCHEMA:
            raise ValueError
        listed = document.pop("done")
        return cls(
            started=datetime.fromisoformat(document.pop("started")),
            done=tuple(step for step in STEPS if step in listed),
            kept=tuple(document.pop("kept")),
            **document,
        )
