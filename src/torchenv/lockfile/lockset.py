"""`torchenv.lock.toml`: what ties the locks of a project's targets to what they were made from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any

from torchenv.errors import InputError
from torchenv.system.documents import Table, nearest, toml, toml_key
from torchenv.system.names import parse_target_name
from torchenv.system.values import frozen

SCHEMA = 2
FILE = "torchenv.lock.toml"

_HEADER = """\
# What the pylock.<target>.toml files beside this one were made from. `torchenv lock` writes all of them,
# `torchenv lock --check` compares, `torchenv sync` builds the one that suits a machine.
"""

# It is rebuilt from the profile and from the locks beside it, whose pins stay.
_LOCK_AGAIN = "run `torchenv lock` to rebuild it; every pin in the locks is kept"

# What in a profile decides what is locked; the rest may change without a new lock.
_SECTIONS = ("torch", "python", "backend", "packages", "index", "target")


@frozen(kw_only=True)
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
            lock=_matching(table, "lock", r"sha256:[0-9a-f]{64}", "a digest") if "lock" in table else None,
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
    """All targets of a project. `wanted` is what the profile and the files that it names asked for.

    It names neither who locked nor what with: two who lock the same write the same bytes. `catalogue` is a
    catalogue of the project's own that decided, by its file.
    """

    wanted: Mapping[str, Any]
    targets: tuple[LockedTarget, ...]
    catalogue: str | None = None

    def target(self, name: str) -> LockedTarget:
        """Return the target of this name; raises `InputError` where there is none."""
        found = next((target for target in self.targets if target.name == name), None)
        if found is None:
            names = [target.name for target in self.targets]
            hint = nearest(name, names) or f"use one of {', '.join(names)}"
            raise InputError(f"target `{name}` not found", hint=hint)
        return found

    @classmethod
    def from_toml(cls, text: str, source: str) -> LockSet:
        """Read the file; raises `InputError` for one that is damaged or of another schema."""
        try:
            table = Table.from_toml(text, source)
        except InputError as error:
            raise InputError(error.message, hint=_LOCK_AGAIN) from None
        table.schema(SCHEMA, remedy=_LOCK_AGAIN)
        table.only({"schema", "catalogue", "wanted", "target"})
        return cls(
            wanted=_require_wish(table.table("wanted")),
            targets=_parse_targets(table.tables("target")),
            catalogue=table.get("catalogue", str, None),
        )

    def to_toml(self) -> str:
        """Write the file: the same values are the same bytes, and a list has a line for each member."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield _HEADER
        yield f"schema = {SCHEMA}"
        if self.catalogue is not None:
            yield f"catalogue = {toml(self.catalogue)}"
        for section, value in self.wanted.items():
            if isinstance(value, Mapping):
                yield from ("", f"[wanted.{toml_key(section)}]")
                yield from (f"{toml_key(name)} = {_by_line(member)}" for name, member in value.items())
        for asked in self.wanted.get("target", ()):
            yield from ("", "[[wanted.target]]")
            yield from (f"{toml_key(name)} = {_by_line(member)}" for name, member in asked.items())
        for target in self.targets:
            yield from ("", "[[target]]")
            for field in fields(target):
                value = getattr(target, field.name)
                if value != field.default:
                    yield f"{field.name} = {_by_line(list(value) if isinstance(value, tuple) else value)}"


def _by_line(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n" + "".join(f"    {toml(member)},\n" for member in value) + "]"
    return toml(value)


def lock_file(target: str) -> str:
    """Return the name of the lock of a target, as PEP 751 wants it."""
    return f"pylock.{target}.toml"


def digest(content: bytes) -> str:
    """Return the digest of a lock, `sha256:…`, whatever an editor or git did to its line ends."""
    return f"sha256:{sha256(normalise(content).encode()).hexdigest()}"


def normalise(content: bytes) -> str:
    """Return the text of a lock as torchenv writes it: UTF-8, lines that end with \\n, one at the end."""
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    return text.replace("\r\n", "\n").rstrip() + "\n"


def is_own_lock(content: bytes) -> bool:
    """Return whether a lock says that torchenv made it, also one with the marks of a merge in it."""
    return re.search(r"^created-by\s*=\s*[\"']torchenv[\"']", normalise(content), re.MULTILINE) is not None


def read_wish(table: Table, asked: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return what in a decoded `torchenv.toml` decides what is locked; the order of a list is no part of it.

    `asked` is what each file that it names asks for, a line each.
    """
    wanted = {name: _sort_lists(table.raw()[name]) for name in _SECTIONS if name in table}
    if isinstance(targets := wanted.get("target"), list):
        wanted["target"] = sorted(targets, key=lambda target: str(target.get("name")))
    if asked:
        wanted["files"] = {name: sorted(lines) for name, lines in asked.items()}
    return wanted


# The order of these is a preference, and so is part of what is wanted.
_ORDERED = frozenset({"only"})


def _sort_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: member if key in _ORDERED else _sort_lists(member) for key, member in value.items()}
    if isinstance(value, list) and all(isinstance(member, str) for member in value):
        return sorted(value)
    if isinstance(value, list):
        return [_sort_lists(member) for member in value]
    return value


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Describe what differs between two things wanted, a sentence each."""
    for section in dict.fromkeys((*before, *after)):
        was, now = before.get(section, {}), after.get(section, {})
        if section == "target":
            was, now = ({asked["name"]: asked for asked in side or ()} for side in (was, now))
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
    content: Callable[[str], bytes | None],
    now: Callable[[], Mapping[str, Decided]],
) -> Iterator[str]:
    """Describe everything that is no longer as it was locked, the cause before what follows from it.

    `content` returns a file of the project, `now` decides anew, as torch and backend of each target: it is
    asked only where what is wanted is the same.
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
    if not changed:
        decided = now()
        locked = {target.name for target in found.targets}
        yield from (f"target {name} is not locked yet" for name in decided if name not in locked)
        for target in found.targets:
            before, after = (target.torch, target.backend), decided.get(target.name, (None, None))
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
