"""The parts of a record to and from their keys in a file, by the names and types of their fields.

A field goes by its name with hyphens, and may say itself how it is read (`read_with`). What a later torchenv
wrote and this one does not know is kept in the field `more`, so that a rewrite loses nothing.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from torchenv.system.documents import Table

Record = TypeVar("Record")

# How the value of a key is read; raises `InputError` that names the key.
Read = Callable[[Table, str], Any]

_MORE = "more"
_READ = "read"

# Fields that do not go by the name of their key.
_KEYS = {
    "from_": "from",
    "proofs": "proof",
    "environments": "environment",
    "switches": "switch",
    "runs": "run",
}


def read_with(read: Read) -> Mapping[str, Read]:
    """Return the metadata of a field that is not read by its type alone."""
    return {_READ: read}


def read_record(table: Table, kind: type[Record], *known: str) -> Record:
    """Read a record of this kind; raises `InputError` that names the key.

    `known` are keys of the file that are no fields, and yet not unknown.
    """
    cls: Any = kind
    own = _list_own(cls)
    given: dict[str, Any] = {
        item.name: item.read(table, item.key) for item in own if item.is_required or item.key in table
    }
    names = {*known, *(item.key for item in own)}
    if any(item.name == _MORE for item in fields(cls)):
        given[_MORE] = {key: value for key, value in table.raw().items() if key not in names}
    record: Record = cls(**given)
    return record


def to_keys(record: Any) -> dict[str, Any]:
    """Return a record under its keys; what is not known or empty has none."""
    known = {item.name: getattr(record, item.name) for item in fields(record) if item.name != _MORE}
    given = {name: value for name, value in known.items() if value is not None and value not in ((), {})}
    return {_key_of(name): _bare(value) for name, value in given.items()} | dict(getattr(record, _MORE, {}))


def as_json(record: Any) -> dict[str, Any]:
    """Return an environment, a switch or another part of the record under its keys in the file.

    Times become text such as `2026-11-30T08:00:00Z`; what is not known has no key.
    """
    document: dict[str, Any] = _write_times(to_keys(record))
    return document


class _Own(NamedTuple):
    name: str
    key: str
    read: Read
    is_required: bool


@cache
def _list_own(kind: Any) -> tuple[_Own, ...]:
    hints = get_type_hints(kind)
    return tuple(
        _Own(
            item.name,
            _key_of(item.name),
            item.metadata.get(_READ) or _reader_of(hints[item.name]),
            item.default is MISSING and item.default_factory is MISSING,
        )
        for item in fields(kind)
        if item.name != _MORE
    )


def _reader_of(kind: Any) -> Read:
    """Return how a value of a type is read; raises TypeError for a type that no record has yet."""
    arguments = get_args(kind)
    if get_origin(kind) is types.UnionType:
        # `str | None`: what is not known has no key.
        return _reader_of(next(one for one in arguments if one is not types.NoneType))
    if get_origin(kind) is tuple:
        return _list_reader(arguments[0])
    if kind is datetime:
        return _read_time
    if kind in (str, int, bool):
        return partial(_read_plain, kind)
    if issubclass(kind, Enum):
        return partial(_read_one_of, kind)
    if is_dataclass(kind):
        return partial(_read_below, kind)
    raise TypeError(f"no record has a field of the type {kind!r} yet")


def _list_reader(kind: Any) -> Read:
    if kind is str:
        return Table.strings
    if kind is int:
        return Table.integers
    return partial(_read_tables, kind)


def _read_plain(kind: type, table: Table, key: str) -> Any:
    return table.get(key, kind)


def _read_one_of(kind: type[Enum], table: Table, key: str) -> Enum:
    return kind(table.one_of(key, [member.value for member in kind]))


def _read_below(kind: Any, table: Table, key: str) -> Any:
    return read_record(table.table(key), kind)


def _read_tables(kind: type, table: Table, key: str) -> tuple[Any, ...]:
    return tuple(read_record(below, kind) for below in table.tables(key))


def _read_time(table: Table, key: str) -> datetime:
    time = table.get(key, datetime)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _key_of(name: str) -> str:
    return _KEYS.get(name, name.replace("_", "-"))


def _bare(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case tuple():
            return [_bare(member) for member in value]
        case Mapping():
            return {str(key): member for key, member in value.items()}
        case _ if is_dataclass(value):
            return to_keys(value)
        case _:
            return value


def _write_times(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case list():
            return [_write_times(member) for member in value]
        case dict():
            return {key: _write_times(member) for key, member in value.items()}
        case _:
            return value
