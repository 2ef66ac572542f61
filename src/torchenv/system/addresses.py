"""Addresses of package indexes: kept apart from their logins, and shown without them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import NamedTuple

from torchenv.errors import InputError
from torchenv.system.values import frozen

# https://user:secret@mirror.example/whl; a password may hold an `@`, so the last one before the path counts.
# In ssh://git@host.example the name is no secret.
_LOGIN = re.compile(r"(?<!ssh://)(?<=://)[^/?#\s'\"<>]*@")

# A token that someone put into an address in another way.
_SECRET = re.compile(r"(?i)([?&](?:[\w-]*token|[\w-]*key|password|secret|auth)=)[^&#\s'\"]+")

BACKEND = "{backend}"


class Login(NamedTuple):
    """A name and a password, or a token in place of either."""

    user: str
    password: str


def mask_logins(text: str) -> str:
    """Return a text whose addresses hold no login any more, for people and for files."""
    return _SECRET.sub(r"\1****", _LOGIN.sub("", text))


def split_login(address: str) -> tuple[str, Login | None]:
    """Return an address without its login, and the login where it holds one."""
    from urllib.parse import unquote

    found = _LOGIN.search(address)
    if found is None:
        return address, None
    user, _, password = found[0][:-1].partition(":")
    return address[: found.start()] + address[found.end() :], Login(unquote(user), unquote(password))


def join_login(address: str, login: Login) -> str:
    """Return an address with a login in it, which is for programs alone."""
    from urllib.parse import quote

    scheme, separator, rest = address.partition("://")
    return f"{scheme}{separator}{quote(login.user, safe='')}:{quote(login.password, safe='')}@{rest}"


def refuse_login(address: str, where: str) -> str:
    """Return the address as it is; raises `InputError` if it holds a login, which a file must not."""
    if mask_logins(address) == address:
        return address
    raise InputError(
        f"{where} holds a login: `{mask_logins(address)}`",
        hint="remove it from the address, then store it in ~/.netrc or in keyring",
    )


def host_of(address: str) -> str:
    """Return the host with its port, in lower case; an address without one has an empty host."""
    from urllib.parse import urlsplit

    try:
        return urlsplit(address).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


@frozen
class TorchIndex:
    """Where the wheels of each backend of torch lie.

    `root` may hold `{backend}`; without it the backend is the last part of the address. `by_backend` names
    an address of its own for a backend, which goes before `root`.
    """

    root: str | None = None
    by_backend: Mapping[str, str] = field(default_factory=dict)

    def at(self, backend: str) -> str | None:
        """Return the index of a backend; None where nothing is said of it. An empty one is the root."""
        if backend in self.by_backend:
            return self.by_backend[backend]
        if self.root is None:
            return None
        if BACKEND in self.root:
            # What a page of all backends would be, no template tells.
            return self.root.replace(BACKEND, backend) if backend else None
        return f"{self.root}/{backend}".rstrip("/")

    @property
    def addresses(self) -> Iterator[str]:
        """Yield every address that it was made from."""
        if self.root is not None:
            yield self.root
        yield from self.by_backend.values()

    def __str__(self) -> str:
        return self.root or ", ".join(self.by_backend.values())
