"""The way to an index: proxies, certificates and logins, the same for pages and for files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchenv.errors import IndexFailed, InputError

if TYPE_CHECKING:
    from http.client import HTTPResponse

TIME_LIMIT = 8.0

# How often a download that breaks off is taken up again where it stopped.
TRIES = 4

# PyTorch's index answers 403 for a path that is not there.
_NOT_THERE = frozenset({403, 404, 410})

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Missing:
    """The index answered that there is no such page."""

    status: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """The real network. `time_limit` is in seconds and bounds every wait for the other side.

    `certificates` is a file of them, `logins` a netrc file in place of the user's own; without `proxies`
    those of the system are used.
    """

    time_limit: float = TIME_LIMIT
    certificates: str | None = None
    logins: str | None = None
    proxies: Mapping[str, str] | None = None

    def text(self, url: str, accept: str, method: str = "GET") -> str | Missing:
        """Return the text behind an address; raises `IndexFailed` where no answer came."""
        with self._open(url, {"Accept": accept}, method) as answer:
            return answer if isinstance(answer, Missing) else str(answer.read().decode("utf-8", "replace"))

    def download(self, url: str, path: Path) -> None:
        """Write what is behind an address to a file; raises `IndexFailed` where it cannot be had whole.

        A download that breaks off is taken up again where it stopped.
        """
        path.unlink(missing_ok=True)
        for turn in range(1, TRIES + 1):
            try:
                self._continue(url, path)
            except IndexFailed:
                if turn == TRIES or not path.exists():
                    raise
            else:
                return

    def _continue(self, url: str, path: Path) -> None:
        there = path.stat().st_size if path.exists() else 0
        with self._open(url, {"Range": f"bytes={there}-"} if there else {}) as answer:
            if isinstance(answer, Missing):
                raise IndexFailed(
                    f"{without_login(url)} can no longer be fetched: it answered {answer.status}",
                    hint="look for it in a cache or on a mirror, or make the lock again without it",
                )
            # Who does not know of ranges begins anew.
            with path.open("ab" if there and answer.status == 206 else "wb") as file:
                while block := answer.read(_BLOCK):
                    file.write(block)
            if answer.length:
                raise IndexFailed(f"{without_login(url)} broke off {answer.length} bytes before its end")

    @contextmanager
    def _open(
        self, url: str, headers: Mapping[str, str], method: str = "GET"
    ) -> Iterator[HTTPResponse | Missing]:
        # Only a command that asks an index pays for these imports.
        from http.client import HTTPException
        from ssl import create_default_context
        from urllib.error import HTTPError
        from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

        address = without_login(url)
        try:
            secure = HTTPSHandler(context=create_default_context(cafile=self.certificates))
        except OSError as error:
            raise InputError(
                f"the certificates in {self.certificates} cannot be read: {error.strerror or error}",
                hint="SSL_CERT_FILE, REQUESTS_CA_BUNDLE or PIP_CERT names that file",
            ) from None
        opener = build_opener(secure, ProxyHandler(None if self.proxies is None else dict(self.proxies)))
        request = Request(address, headers=dict(headers), method=method)  # noqa: S310
        if login := _login(url, self.logins):
            # A redirect leads to another host, which has no business with the login.
            request.add_unredirected_header("Authorization", login)
        try:
            with opener.open(request, timeout=self.time_limit) as answer:
                yield answer
        except HTTPError as error:
            error.close()
            if error.code in _NOT_THERE:
                yield Missing(error.code)
                return
            cure = "put its login into ~/.netrc" if error.code == 401 else None
            raise IndexFailed(f"the index at {address} answered {error.code}", hint=cure) from None
        except (OSError, ValueError, HTTPException) as error:
            raise IndexFailed(
                f"the index at {address} cannot be reached: {getattr(error, 'reason', error)}",
                hint="check the network and its proxy, or name a mirror with TORCHENV_TORCH_INDEX",
            ) from None


def _login(url: str, logins: str | None) -> str | None:
    from base64 import b64encode
    from netrc import NetrcParseError, netrc
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    else:
        try:
            known = netrc(logins).authenticators(parts.hostname or "")
        except (OSError, NetrcParseError):
            return None
        if known is None:
            return None
        pair = f"{known[0]}:{known[2]}"
    return "Basic " + b64encode(pair.encode()).decode()


def without_login(url: str) -> str:
    # https://user:secret@mirror.example/whl/cu132/torch/
    return re.sub(r"//[^/@]*@", "//", url)
