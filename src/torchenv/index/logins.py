"""Which login goes to which host: a variable's, netrc's, keyring's, and never to a host that nobody named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from torchenv.system.addresses import Login, host_of, split_login

if TYPE_CHECKING:
    from torchenv.system.process import Runner

# Keyring may ask the desktop of its user for leave.
_KEYRING_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Logins:
    """The logins of one run.

    `given` are those that variables hold, by host; they are used and never written. `netrc` is the file in
    place of ~/.netrc. `named` are the hosts that the user named: only they get the `default` entry of netrc.
    `run` starts the `keyring` program, where there is one.
    """

    given: Mapping[str, Login] = field(default_factory=dict)
    netrc: Path | None = None
    named: frozenset[str] = frozenset()
    run: Runner | None = None
    _remembered: dict[str, Login | None] = field(default_factory=dict, compare=False)

    def find(self, url: str) -> Login | None:
        """Return the login that is sent to this address; None if there is none."""
        host, written = host_of(url), split_login(url)[1]
        return written or self.given.get(host) or self._in_netrc(host) or self._remembered.get(host)

    def for_program(self, url: str) -> Login | None:
        """Return the login that a program is to be told of; not what it reads in netrc itself."""
        host = host_of(url)
        own = self.given.get(host) or self._remembered.get(host)
        return own or (self._in_netrc(host) if self.has_default else None)

    @property
    def has_default(self) -> bool:
        """Whether netrc has an entry that other programs would send to every host."""
        return "default" in self._netrc_entries

    def ask_keyring(self, url: str) -> Login | None:
        """Ask the keyring for a login of a host that refused; None where it has none.

        It is asked once for each host: for the address and then for the host, as pip and uv do.
        """
        host = host_of(url)
        if self.run is None:
            return None
        if host not in self._remembered:
            services = (url, host, host.partition(":")[0])
            found = (self._from_keyring(service) for service in dict.fromkeys(services))
            self._remembered[host] = next(filter(None, found), None)
        return self._remembered[host]

    def _from_keyring(self, service: str) -> Login | None:
        from torchenv.system.process import Command

        assert self.run is not None
        command = Command(("keyring", "get", service, "--mode", "creds"))
        done = self.run(command, timeout=_KEYRING_SECONDS)
        if done.code == 0 and len(said := done.out.splitlines()) >= 2:
            return Login(said[0].strip(), said[1].strip())
        return None

    def _in_netrc(self, host: str) -> Login | None:
        entries = self._netrc_entries
        name = host.partition(":")[0]
        # `default` would hand one company's password to whatever host a page links to.
        entry = entries.get(name) or (entries.get("default") if host in self.named else None)
        return Login(entry[0], entry[2]) if entry else None

    @cached_property
    def _netrc_entries(self) -> Mapping[str, tuple[str, str, str]]:
        return read_netrc(self.netrc)


def read_netrc(path: Path | None) -> Mapping[str, tuple[str, str, str]]:
    """Read the entries of a netrc file, by machine; a file that is not there or is damaged has none."""
    from netrc import NetrcParseError, netrc

    if path is None:
        return {}
    try:
        entries = netrc(path).hosts
    except (OSError, NetrcParseError, UnicodeDecodeError, ValueError):
        return {}
    return {
        name: (user or "", account or "", password or "")
        for name, (user, account, password) in entries.items()
    }
