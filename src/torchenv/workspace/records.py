"""What the lines of the manifest hold: environments, switches, runs and lifeboats, to and from their keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from torchenv.environment.base_python import BasePython
from torchenv.system.names import parse_environment_name

if TYPE_CHECKING:
    from torchenv.system.documents import Table


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


@dataclass(frozen=True, kw_only=True, slots=True)
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

    @classmethod
    def parse(cls, table: Table) -> ChoiceRecord:
        return cls(
            profile=table.get("profile", str, None),
            outcome=table.get("outcome", str, None),
            by_hand=table.get("by-hand", bool, default=False),
            because=table.strings("because"),
            ignored=table.strings("ignored"),
            warnings=table.strings("warnings"),
            added=table.strings("added"),
            brought=table.strings("brought"),
            more=unknown_keys(table, cls),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Activation:
    """What an environment needs of the variables around it: those to set, and those that would mislead it.

    One that shows only some devices gives way to what the user has set.
    """

    set: Mapping[str, str] = field(default_factory=dict, hash=False)
    unset: tuple[str, ...] = ()
    more: More = field(default_factory=nothing_more, hash=False)

    @classmethod
    def parse(cls, table: Table) -> Activation:
        variables = table.table("set")
        for name in variables:
            if not _VARIABLE.fullmatch(name):
                raise variables.wrong(name, "is not the name of a variable")
        for name in table.strings("unset"):
            if not _VARIABLE.fullmatch(name):
                raise table.wrong("unset", f"holds `{name}`, which is not the name of a variable")
        return cls(
            set={name: variables.get(name, str) for name in variables},
            unset=table.strings("unset"),
            more=unknown_keys(table, cls),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
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

    @classmethod
    def parse(cls, table: Table) -> Proof:
        return cls(
            at=_time(table, "at"),
            passed=table.get("passed", bool),
            what=table.get("what", str),
            host=table.get("host", str, None),
            devices=table.strings("devices"),
            git=table.get("git", str, None),
            said=table.strings("said"),
            profile=table.get("profile", str, None),
            commands=table.strings("commands"),
            more=unknown_keys(table, cls),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """A numbered environment: built once, proven, never changed; or adopted, and only read.

    `lock` and `fingerprint` are digests; `identity` is what the environment is known by when its
    directory has moved; `reads` names the checkpoints its torch can read, such as `dcp<=2.14`.
    """

    number: int
    name: str
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

    @classmethod
    def parse(cls, table: Table) -> Environment:
        python = table.table("python")
        return cls(
            number=table.get("number", int),
            name=parse_environment_name(table, "name"),
            kind=EnvironmentKind(table.one_of("kind", [item.value for item in EnvironmentKind])),
            state=State(table.one_of("state", [item.value for item in State])),
            path=table.get("path", str),
            python=BasePython(
                python.get("version", str), python.get("path", str), python.get("digest", str, None)
            ),
            torch=table.get("torch", str, None),
            backend=table.get("backend", str, None),
            index=table.get("index", str, None),
            lock=table.get("lock", str, None),
            created=_time(table, "created"),
            fingerprint=table.get("fingerprint", str, None),
            reads=table.get("reads", str, None),
            layout=table.get("layout", str, None),
            identity=table.get("identity", str, None),
            host=table.get("host", str, None),
            choice=ChoiceRecord.parse(table.table("choice")) if "choice" in table else None,
            activation=Activation.parse(table.table("activation")) if "activation" in table else None,
            proofs=tuple(map(Proof.parse, table.tables("proof"))),
            more=unknown_keys(table, cls),
        )

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch:
    """One move of the pointer; `said` is what the checks said at the time."""

    at: datetime
    from_: int | None = None
    to: int
    why: str
    said: tuple[str, ...] = ()
    more: More = field(default_factory=nothing_more, hash=False)

    @classmethod
    def parse(cls, table: Table) -> Switch:
        return cls(
            at=_time(table, "at"),
            from_=table.get("from", int, None),
            to=table.get("to", int),
            why=table.get("why", str),
            said=table.strings("said"),
            more=unknown_keys(table, cls),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What a scan saw of one training run; `newest_readable` goes by the number of the environment.

    `newest` is the newest complete save, which torch `needs` or newer reads, and of which a downgraded copy
    could be read by the environments of `downgrades_for`. `broken` are incomplete or damaged saves after it.
    For those of `unknown_for` it is not known whether they read the newest, as it holds what torch does not.
    Of the environments of `unjudged_for` nothing is known: they came later, and no index was there to ask.
    """

    path: str
    newest: str | None = None
    newest_readable: Mapping[int, str] = field(default_factory=dict, hash=False)
    needs: str | None = None
    downgrades_for: tuple[int, ...] = ()
    broken: tuple[str, ...] = ()
    unjudged_for: tuple[int, ...] = ()
    unknown_for: tuple[int, ...] = ()
    more: More = field(default_factory=nothing_more, hash=False)

    @classmethod
    def parse(cls, table: Table) -> Run:
        readable = table.table("newest-readable")
        for key in readable:
            if not key.isdecimal():
                raise readable.wrong(key, "is not the number of an environment")
        return cls(
            path=table.get("path", str),
            newest=table.get("newest", str, None),
            newest_readable={int(key): readable.get(key, str) for key in readable},
            needs=table.get("needs", str, None),
            downgrades_for=table.integers("downgrades-for"),
            broken=table.strings("broken"),
            unjudged_for=table.integers("unjudged-for"),
            unknown_for=table.integers("unknown-for"),
            more=unknown_keys(table, cls),
        )

    def without(self, number: int) -> Run:
        """Return the same run with nothing said of an environment."""
        return replace(
            self,
            newest_readable={
                reader: save for reader, save in self.newest_readable.items() if reader != number
            },
            downgrades_for=tuple(reader for reader in self.downgrades_for if reader != number),
            unjudged_for=tuple(reader for reader in self.unjudged_for if reader != number),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
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

    @classmethod
    def parse(cls, table: Table) -> Kept:
        return cls(
            path=table.get("path", str),
            digest=table.get("digest", str, None),
            readable_by=table.integers("readable-by"),
            saved=_time(table, "saved") if "saved" in table else None,
            copy=table.get("copy", str, None),
            more=unknown_keys(table, cls),
        )


def as_json(value: Any) -> dict[str, Any]:
    """Return an environment, a switch or another part of the record under its keys in the file.

    Times become text such as `2026-11-30T08:00:00Z`; what is not known has no key.
    """
    document: dict[str, Any] = _strip_times(to_keys(value))
    return document


# Fields that do not go by the name of their key.
_KEYS = {
    "from_": "from",
    "proofs": "proof",
    "environments": "environment",
    "switches": "switch",
    "runs": "run",
}


def _key(name: str) -> str:
    return _KEYS.get(name, name.replace("_", "-"))


def to_keys(value: Any) -> dict[str, Any]:
    known = {item.name: getattr(value, item.name) for item in fields(value) if item.name != "more"}
    given = {name: each for name, each in known.items() if each is not None and each not in ((), {})}
    return {_key(name): _bare(each) for name, each in given.items()} | dict(getattr(value, "more", {}))


def _bare(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case tuple():
            return [_bare(item) for item in value]
        case Mapping():
            return {str(key): each for key, each in value.items()}
        case _ if is_dataclass(value):
            return to_keys(value)
        case _:
            return value


def _strip_times(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case list():
            return [_strip_times(item) for item in value]
        case dict():
            return {key: _strip_times(each) for key, each in value.items()}
        case _:
            return value


def unknown_keys(table: Table, kind: type, *known: str) -> More:
    names = {*known, *(_key(item.name) for item in fields(kind))}
    return {key: value for key, value in table.raw().items() if key not in names}


def _time(table: Table, key: str) -> datetime:
    time = table.get(key, datetime)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
