"""What stands in place of the default indexes, and the logins that came with its addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from torchenv.errors import InputError
from torchenv.system.addresses import Login, TorchIndex, host_of, split_login
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from torchenv.profile.model import Indexes

# Other tools' variables, of which only the logins are taken: for the same host they are as good here.
_LOGINS_ONLY = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
)


@frozen(kw_only=True)
class Mirrors:
    """The indexes that are named in place of PyTorch's (`torch`) and of the default one (`packages`).

    None leaves the default. `logins` are those that variables hold, by host: the addresses are without.
    `named` are the hosts that the user named in a variable.
    """

    torch: TorchIndex | None = None
    packages: str | None = None
    logins: Mapping[str, Login] = field(default_factory=dict)
    named: frozenset[str] = frozenset()

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts of the mirrors, whoever named them."""
        addresses = [*(self.torch.addresses if self.torch else ()), self.packages or ""]
        return frozenset(filter(None, map(host_of, addresses)))

    @classmethod
    def of(cls, environ: Mapping[str, str], profile: Indexes | None = None) -> Mirrors:
        """Take the variables, else what the profile says; raises `InputError` for what is no address."""
        torch, packages = (
            _read(environ, name) for name in ("TORCHENV_TORCH_INDEX", "TORCHENV_PACKAGE_INDEX")
        )
        logins = dict(_logins(environ))
        return cls(
            torch=TorchIndex(torch) if torch else (profile.torch if profile else None),
            packages=packages or (profile.packages if profile else None),
            logins=logins,
            named=frozenset({host_of(address) for address in (torch, packages) if address} | set(logins)),
        )


def _read(environ: Mapping[str, str], name: str) -> str | None:
    address = split_login(environ.get(name, "").strip().rstrip("/"))[0]
    if address and not address.startswith(("https://", "http://", "file://")):
        raise InputError(
            f"`{name}` is not an address: `{address}`",
            hint=f"set {name} to an address that begins with https:// or file://",
        )
    return address or None


def _logins(environ: Mapping[str, str]) -> Iterator[tuple[str, Login]]:
    for name in (*_LOGINS_ONLY, "TORCHENV_TORCH_INDEX", "TORCHENV_PACKAGE_INDEX"):
        for word in environ.get(name, "").split():
            # UV_INDEX may name an index: corp=https://…
            address, login = split_login(word)
            if login is not None:
                yield (
                    host_of(address.partition("=")[2] if "=" in address.partition("://")[0] else address),
                    login,
                )
