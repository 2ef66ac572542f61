"""`torchenv.lock.toml`: what ties the locks of a project's targets to what they were made from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from torchenv.errors import InputError
from torchenv.system.documents import Table, toml, toml_key
from torchenv.system.names import parse_target_name

SCHEMA = 1
FILE = "torchenv.lock.toml"

_HEADER = """\
# What the pylock.<target>.toml files beside this one were made from. `torchenv lock` writes all of them,
# `torchenv lock --check` compares, `torchenv sync` builds the one that suits a machine.
"""

_LOCK_AGAIN = "run `torchenv lock`"

# What in a profile decides what is locked; the rest may change without a new lock.
_SECTIONS = ("torch", "python", "backend", "packages", "index", "target")


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedTarget:
    """What was decided for a target.

    `torch` is what its environment holds (2.14.1+cu126), `lock` the digest of its file, `because` why it is
    not the release that was asked for. One that no release has wheels for says so and has no lock.
    """

    name: str
    platform: str
    python: str
    torch: str | None = None
    backend: str | None = None
    index: str = "torch"
    lock: str | None = None
    because: tuple[str, ...] = ()
    unsupported: str | None = None

    @classmethod
    def parse(cls, table: Table) -> LockedTarget:
        table.only({field.name for field in fields(cls)})
        return cls(
            name=parse_target_name(table, "name"),
            platform=_matching(table, "platform", r"[a-z0-9]+-[a-z0-9_]+", "a platform such as linux-x86_64"),
            python=_matching(table, "python", r"3\.\d{1,3}t?", "a minor version such as 3.12"),
            torch=table.get("torch", str, None),
            backend=table.get("backend", str, None),
            index=table.get("index", str, "torch"),
            lock=table.get("lock", str, None),
            because=table.strings("because"),
            unsupported=table.get("unsupported", str, None),
        )

    @property
    def file(self) -> str:
        """The name of its lock."""
        return lock_file(self.name)

    def __str__(self) -> str:
        return f"{self.name} ({self.platform}, torch {self.torch or 'none'})"


@dataclass(frozen=True, kw_only=True)
class LockSet:
    """All targets of a project. `wanted` is what the profile said; `catalogue` and `uv` are who decided.

    `compiled` is the day of the catalogue, for people.
    """

    wanted: Mapping[str, Any]
    catalogue: str
    compiled: str
    uv: str
    targets: tuple[LockedTarget, ...]

    @cached_property
    def profile(self) -> str:
        """The digest of what was wanted, `sha256:…`."""
        return digest(json.dumps(self.wanted, sort_keys=True, default=date.isoformat).encode())

    def is_made_from(self, wanted: Mapping[str, Any], catalogue: str) -> bool:
        """Whether it was decided from the same profile and the same catalogue."""
        return self.wanted == wanted and self.catalogue == catalogue

    def target(self, name: str) -> LockedTarget:
        """Return the target of this name; raises `InputError` where there is none."""
        found = next((each for each in self.targets if each.name == name), None)
        if found is None:
            names = ", ".join(each.name for each in self.targets)
            raise InputError(f"no target is called {name!r}", hint=f"the targets are {names}")
        return found

    @classmethod
    def from_toml(cls, text: str, source: str) -> LockSet:
        """Read the file; raises `InputError` for one that is damaged or of another schema."""
        try:
            table = Table.from_toml(text, source)
        except InputError as error:
            hint = f"take it from where the project's files are kept, or delete it and {_LOCK_AGAIN}"
            raise InputError(error.message, hint=hint) from None
        table.schema(SCHEMA, remedy=f"use the torchenv that wrote it, or delete it and {_LOCK_AGAIN}")
        table.only({"schema", "profile", "catalogue", "uv", "wanted", "target"})
        catalogue = table.table("catalogue")
        return cls(
            wanted=_require_wish(table.table("wanted")),
            catalogue=catalogue.get("digest", str),
            compiled=catalogue.get("compiled", str),
            uv=table.get("uv", str),
            targets=_parse_targets(table.tables("target")),
        )

    def to_toml(self) -> str:
        """Write the file: the same values are the same bytes."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield _HEADER
        yield f"schema = {SCHEMA}"
        yield f"profile = {toml(self.profile)}"
        yield f"catalogue = {toml({'compiled': self.compiled, 'digest': self.catalogue})}"
        yield f"uv = {toml(self.uv)}"
        for section, value in self.wanted.items():
            if isinstance(value, Mapping):
                yield from ("", f"[wanted.{toml_key(section)}]")
                yield from (f"{toml_key(name)} = {toml(each)}" for name, each in value.items())
        for asked in self.wanted.get("target", ()):
            yield from ("", "[[wanted.target]]")
            yield from (f"{toml_key(name)} = {toml(each)}" for name, each in asked.items())
        for target in self.targets:
            yield from ("", "[[target]]")
            for each in fields(target):
                value = getattr(target, each.name)
                if value != each.default:
                    yield f"{each.name} = {toml(list(value) if isinstance(value, tuple) else value)}"


def lock_file(target: str) -> str:
    """Return the name of the lock of a target, as PEP 751 wants it."""
    return f"pylock.{target}.toml"


def digest(content: bytes) -> str:
    """Return the digest of a file, `sha256:…`."""
    return f"sha256:{sha256(content).hexdigest()}"


def read_wish(table: Table, directory: Path) -> dict[str, Any]:
    """Return what in a decoded `torchenv.toml` decides what is locked, files that it names by their digests.

    Raises `InputError` where such a file cannot be read.
    """
    wanted = {name: table.raw()[name] for name in _SECTIONS if name in table}
    named = table.table("packages").strings("from")
    if named:
        wanted["files"] = {name: digest(_content(directory, name)) for name in named}
    return wanted


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Describe what differs between two things wanted, a sentence each."""
    for section in dict.fromkeys((*before, *after)):
        was, now = before.get(section, {}), after.get(section, {})
        if section == "target":
            was, now = ({each["name"]: each for each in side or ()} for side in (was, now))
        for name in dict.fromkeys((*was, *now)):
            if was.get(name) != now.get(name):
                place = f"target {name}" if section == "target" else f"[{section}] {name}"
                then, since = _describe_value(was.get(name)), _describe_value(now.get(name))
                yield f"{place}: {then} when it was locked, {since} now"


Decided = tuple[str | None, str | None]


def drift(
    found: LockSet,
    wanted: Mapping[str, Any],
    *,
    catalogue: str,
    content: Callable[[str], bytes | None],
    now: Callable[[], Mapping[str, Decided]],
) -> Iterator[str]:
    """Describe everything that is no longer as it was locked, the cause before what follows from it.

    `catalogue` is the digest of the catalogue now, `content` gives a file of the project, `now` decides anew,
    as torch and backend of each target: it is asked only where the catalogue has changed.
    """
    changed = list(changes(found.wanted, wanted))
    yield from changed
    for target in found.targets:
        if target.lock is None:
            continue
        held = content(target.file)
        if held is None:
            yield f"{target.file} is missing"
        elif digest(held) != target.lock:
            yield f"{target.file} was changed since it was locked: {target.lock} then, {digest(held)} now"
    if catalogue != found.catalogue and not changed:
        decided = now()
        for target in found.targets:
            before, after = (target.torch, target.backend), decided[target.name]
            if before != after:
                was, will = _decision(before), _decision(after)
                yield f"target {target.name}: {was} when it was locked, and the catalogue now gives {will}"


def _parse_targets(tables: Sequence[Table]) -> tuple[LockedTarget, ...]:
    targets: dict[str, LockedTarget] = {}
    for table in tables:
        target = LockedTarget.parse(table)
        if target.name in targets:
            raise table.wrong("name", f"`{target.name}` names two targets", _LOCK_AGAIN)
        targets[target.name] = target
    return tuple(targets.values())


def _matching(table: Table, key: str, pattern: str, wanted: str) -> str:
    value = table.get(key, str)
    if re.fullmatch(pattern, value) is None:
        raise table.wrong(key, f"`{value}` is not {wanted}", _LOCK_AGAIN)
    return value


def _require_wish(table: Table) -> Mapping[str, Any]:
    """Return what was wanted; raises `InputError` where a section is none, or a target has no name."""
    for section in table.raw():
        if section != "target":
            table.table(section)
    for target in table.tables("target"):
        target.get("name", str)
    return table.raw()


def _decision(decided: Decided) -> str:
    torch, backend = decided
    return f"torch {torch} ({backend})" if torch else "no torch"


def _describe_value(value: object) -> str:
    return "not there" if value is None else toml(value)


def _content(directory: Path, name: str) -> bytes:
    # pyproject.toml[test,docs] takes extras along
    path = directory / name.partition("[")[0]
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
