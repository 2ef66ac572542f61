"""Decoded TOML and JSON turned into typed values, each of which knows its place in its file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, TypeVar, overload

from torchenv.errors import InputError

T = TypeVar("T")
D = TypeVar("D")

_REQUIRED: Any = object()

# The words that a person who writes TOML or JSON knows these types by.
_SPOKEN = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
    date: "a date",
    datetime: "a time",
}


class Table:
    """One table of a document: it gives typed values, or says which key is wrong and why.

    Every method that reads raises `InputError`, whose message begins with the file and the key.
    """

    __slots__ = ("_data", "_place", "source")

    def __init__(self, data: Mapping[str, Any], source: str, place: str = "") -> None:
        self._data = data
        self._place = place
        self.source = source

    @classmethod
    def from_toml(cls, text: str, source: str) -> Table:
        """Read a TOML document; `source` is the name of its file in messages."""
        # The compiled tomli reads the catalogue in half of tomllib's 15 ms.
        import tomli

        try:
            return cls(tomli.loads(text), source)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{source}: not valid TOML: {error}") from None

    @classmethod
    def from_json(cls, text: str, source: str) -> Table:
        """Read a JSON document whose outermost value is an object."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            hint = "make the file again: it is incomplete or damaged"
            raise InputError(f"{source}: not valid JSON: {error}", hint=hint) from None
        if not isinstance(data, dict):
            raise InputError(f"{source}: the document is {_spoken(data)}, not an object")
        return cls(data, source)

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def raw(self) -> Mapping[str, Any]:
        """Return the decoded data as they are."""
        return self._data

    def only(self, known: Iterable[str]) -> None:
        """Refuse a key that nobody reads, so that a typo is never a silent default."""
        known = sorted(known)
        for key in self._data:
            if key not in known:
                raise InputError(f"{self.source}: {self._at(key)} is not a setting", hint=nearest(key, known))

    @overload
    def get(self, key: str, kind: type[T]) -> T: ...
    @overload
    def get(self, key: str, kind: type[T], default: D) -> T | D: ...
    def get(self, key: str, kind: type[T], default: Any = _REQUIRED) -> Any:
        """Return the value of `key`, which must be of `kind`; without a default it must be there.

        A whole number is taken where a float is asked for; a bool is never taken for a number.
        """
        if key not in self._data:
            if default is not _REQUIRED:
                return default
            raise InputError(f"{self.source}: {self._at(key)} is missing")
        value = self._data[key]
        if kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            wanted = _SPOKEN.get(kind, kind.__name__)
            raise self.wrong(key, f"must be {wanted}, not {_spoken(value)}")
        return value

    @overload
    def maybe(self, key: str, kind: type[T]) -> T | None: ...
    @overload
    def maybe(self, key: str, kind: type[T], default: D) -> T | D: ...
    def maybe(self, key: str, kind: type[T], default: Any = None) -> Any:
        """Return the value of `key`; a missing key and a JSON null both mean the default."""
        return default if self._data.get(key) is None else self.get(key, kind)

    def one_of(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        """Return a string that must be one of `choices`; without a default it must be there."""
        value = self.get(key, str) if default is None else self.get(key, str, default)
        if value not in choices:
            message = f"`{value}` is not one of {', '.join(choices)}"
            raise self.wrong(key, message, nearest(value, choices))
        return value

    def strings(self, key: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        """Return a list of strings."""
        return tuple(self._members(key, str, default))

    def integers(self, key: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """Return a list of whole numbers."""
        return tuple(self._members(key, int, default))

    def table(self, key: str) -> Table:
        """Return the table under `key`; a missing one is empty."""
        return Table(self.get(key, dict, {}), self.source, self._at(key))

    def tables(self, key: str) -> tuple[Table, ...]:
        """Return the list of tables under `key`; a missing one is empty."""
        members = self._members(key, dict, ())
        at = self._at(key)
        return tuple(Table(member, self.source, f"{at}[{n}]") for n, member in enumerate(members))

    def schema(self, newest: int, *, remedy: str) -> None:
        """Refuse a document whose `schema` number this torchenv does not know."""
        number = self.get("schema", int)
        if number != newest:
            raise self.wrong("schema", f"is {number}, and this torchenv reads {newest}", remedy)

    def wrong(self, key: str, message: str, hint: str | None = None) -> InputError:
        """Make the error that says what is wrong with the value of `key`."""
        return InputError(f"{self.source}: {self._at(key)}: {message}", hint=hint)

    def _members(self, key: str, kind: type[T], default: Sequence[T]) -> list[T]:
        if key not in self._data:
            return list(default)
        members = self.get(key, list)
        for n, member in enumerate(members):
            if not isinstance(member, kind) or (isinstance(member, bool) and kind is not bool):
                wanted = _SPOKEN.get(kind, kind.__name__)
                raise self.wrong(f"{key}[{n}]", f"must be {wanted}, not {_spoken(member)}")
        return members

    def _at(self, key: str) -> str:
        shown = key if re.fullmatch(r"[\w\-\[\]]+", key) else json.dumps(key)
        return f"{self._place}.{shown}" if self._place else shown


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Guess what was meant by a word that is not among the known ones, as a hint."""
    # Only a mistake pays for this import.
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=1)
    return f"did you mean `{close[0]}`?" if close else None


def toml(value: object) -> str:
    """Write a decoded value as TOML, on one line.

    tomlkit would do this too. It takes 30 ms to begin and ten times as long for each value, and a rollback
    writes hundreds of them.
    """
    match value:
        case bool():
            return str(value).lower()
        case str():
            # A JSON string is a TOML string, but for this one character.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            members = ", ".join(f"{toml_key(key)} = {toml(inner)}" for key, inner in value.items())
            return f"{{ {members} }}"
        case _:
            return str(value)


def toml_key(key: str) -> str:
    """Write a key, in quotes where it needs them."""
    bare = key.replace("-", "").replace("_", "")
    return key if bare.isascii() and bare.isalnum() else json.dumps(key, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Turn frozen values into what JSON and TOML can hold, under the names of their fields."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Enum():
            return value.value
        case Mapping():
            return {key: plain(inner) for key, inner in value.items()}
        case list() | frozenset():
            return [plain(item) for item in value]
        case tuple() if not hasattr(value, "_fields"):
            return [plain(item) for item in value]
        case _:
            return str(value)


def _spoken(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"the string `{value}`"
    return next((said for kind, said in _SPOKEN.items() if type(value) is kind), repr(value))
