"""What the lines of the manifest hold: environments, switches, runs and lifeboats, to and from their keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from enum import Enum
from typing import Any

from torchenv.environment.base_python import BasePython
from torchenv.system.documents import Table
from torchenv.system.names import parse_environment_name
from torchenv.system.values import frozen
from torchenv.workspace.keys import read_with


class EnvironmentKind(Enum):
    """Who made an environment; an adopted one belongs to someone else and is only read."""

    BUILT = "built"
    ADOPTED = "adopted"


class State(Enum):
    """How far an environment has come; only `READY`, `PROVEN` and `FAILED` ones are on disk for use."""

    BUILDING = "building"
    READY = "ready"
    PROVEN = "proven"
    FAILED = "failed"
    REMOVED = "removed"


# What is written into a script that a shell evaluates.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Keys that a later torchenv wrote and this one does not know: kept, so that a rewrite loses nothing.
More = Mapping[str, Any]


def nothing_more() -> More:
    """Return the usual `more`."""
    return {}


@frozen(kw_only=True)
class ChoiceRecord:
    """How an environment came to be chosen, for the one who asks later why it is not another.

    `ignored` are other tools' settings that did not steer it, `warnings` what may undo it. `added` are the
    requirements that `torchenv add` put beside what was planned, `brought` the names that came with them.
    """

    profile: str | None = None
    outcome: str | None = None
    by_hand: bool = False
    because: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    brought: tuple[str, ...] = ()
    more: More = field(default_factory=nothing_more, hash=False)


def _read_variables(table: Table, key: str) -> Mapping[str, str]:
    variables = table.table(key)
    for name in variables:
        if not _VARIABLE.fullmatch(name):
            raise variables.wrong(name, "is not the name of a variable")
    return {name: variables.get(name, str) for name in variables}


def _read_names(table: Table, key: str) -> tuple[str, ...]:
    for name in table.strings(key):
        if not _VARIABLE.fullmatch(name):
            raise table.wrong(key, f"holds `{name}`, which is not the name of a variable")
    return table.strings(key)


@frozen(kw_only=True)
class Activation:
    """What an environment needs of the variables around it: those to set, and those that would mislead it.

    One that shows only some devices gives way to what the user has set.
    """

    set: Mapping[str, str] = field(default_factory=dict, hash=False, metadata=read_with(_read_variables))
    unset: tuple[str, ...] = field(default=(), metadata=read_with(_read_names))
    more: More = field(default_factory=nothing_more, hash=False)


@frozen(kw_only=True)
class Proof:
    """One run of checks in an environment; without devices it says nothing of a GPU.

    `host` is the name of the machine and `git` the commit that torch says it was built from; `profile` and
    `commands` are whose commands ran and which, as they are typed.
    """

    at: datetime
    passed: bool
    what: str
    host: str | None = None
    devices: tuple[str, ...] = ()
    git: str | None = None
    said: tuple[str, ...] = ()
    profile: str | None = None
    commands: tuple[str, ...] = ()
    more: More = field(default_factory=nothing_more, hash=False)


@frozen(kw_only=True)
class Environment:
    """A numbered environment: built once, proven, never changed; or adopted, and only read.

    `lock` and `fingerprint` are digests; `identity` is what the environment is known by when its
    directory has moved; `reads` names the checkpoints its torch can read, such as `dcp<=2.14`.
    """

    number: int
    name: str = field(metadata=read_with(parse_environment_name))
    kind: EnvironmentKind
    state: State
    path: str
    python: BasePython
    torch: str | None = None
    backend: str | None = None
    index: str | None = None
    lock: str | None = None
    created: datetime
    fingerprint: str | None = None
    reads: str | None = None
    layout: str | None = None
    identity: str | None = None
    host: str | None = None
    choice: ChoiceRecord | None = None
    activation: Activation | None = None
    proofs: tuple[Proof, ...] = ()
    more: More = field(default_factory=nothing_more, hash=False)

    @property
    def live(self) -> bool:
        """Whether the record says that it can be used: finished, not removed, no check failed."""
        return self.state in (State.READY, State.PROVEN)

    @property
    def is_rebuilding(self) -> bool:
        """Whether it was there once and is being built again from its lock."""
        return self.state is State.BUILDING and self.lock is not None

    @property
    def on_disk(self) -> bool:
        """Whether the record says that it is finished and not removed."""
        return self.live or self.state is State.FAILED

    def __str__(self) -> str:
        return f"{self.number} ({self.name})"


@frozen(kw_only=True)
class Switch:
    """One move of the pointer; `said` is what the checks said at the time."""

    at: datetime
    from_: int | None = None
    to: int
    why: str
    said: tuple[str, ...] = ()
    more: More = field(default_factory=nothing_more, hash=False)


def _read_by_number(table: Table, key: str) -> Mapping[int, str]:
    by_number = table.table(key)
    for number in by_number:
        if not number.isdecimal():
            raise by_number.wrong(number, "is not the number of an environment")
    return {int(number): by_number.get(number, str) for number in by_number}


@frozen(kw_only=True)
class Run:
    """What a scan saw of one training run; `newest_readable` goes by the number of the environment.

    `newest` is the newest complete save, which torch `needs` or newer reads, and of which a downgraded copy
    could be read by the environments of `downgrades_for`. `broken` are incomplete or damaged saves after it,
    `writing` those that were being written when it was looked at.
    For those of `unknown_for` it is not known whether they read the newest, as it holds what torch does not.
    Those of `with_code_for` read the save of `newest_readable` only with code or an allow-list.
    Those of `lacks` read the newest with another package, such as numpy>=1.26, and have none of that version.
    Of the environments of `unjudged_for` nothing is known: they came later, and no index was there to ask.
    """

    path: str
    newest: str | None = None
    newest_readable: Mapping[int, str] = field(
        default_factory=dict, hash=False, metadata=read_with(_read_by_number)
    )
    needs: str | None = None
    downgrades_for: tuple[int, ...] = ()
    broken: tuple[str, ...] = ()
    writing: tuple[str, ...] = ()
    unjudged_for: tuple[int, ...] = ()
    unknown_for: tuple[int, ...] = ()
    with_code_for: tuple[int, ...] = ()
    lacks: Mapping[int, str] = field(default_factory=dict, hash=False, metadata=read_with(_read_by_number))
    more: More = field(default_factory=nothing_more, hash=False)

    def without(self, number: int) -> Run:
        """Return the same run with nothing said of an environment."""
        return replace(
            self,
            newest_readable={
                reader: save for reader, save in self.newest_readable.items() if reader != number
            },
            downgrades_for=tuple(reader for reader in self.downgrades_for if reader != number),
            unjudged_for=tuple(reader for reader in self.unjudged_for if reader != number),
            unknown_for=tuple(reader for reader in self.unknown_for if reader != number),
            with_code_for=tuple(reader for reader in self.with_code_for if reader != number),
            lacks={reader: packages for reader, packages in self.lacks.items() if reader != number},
        )


@frozen(kw_only=True)
class Kept:
    """A lifeboat: a checkpoint kept untouched, with the environments that can read it.

    `saved` is when it was written, `copy` where torchenv has one of its own.
    """

    path: str
    digest: str | None = None
    readable_by: tuple[int, ...] = ()
    saved: datetime | None = None
    copy: str | None = None
    more: More = field(default_factory=nothing_more, hash=False)
