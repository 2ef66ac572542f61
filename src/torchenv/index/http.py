"""The way to an index: proxies, certificates, logins and limits, the same for pages and for files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from torchenv.errors import IndexFailed, IndexUnreachable, InputError
from torchenv.index.logins import Logins
from torchenv.index.together import wait_for
from torchenv.system.addresses import Login, host_of, mask_logins
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from ssl import SSLContext

    from requests import Response, Session

# Seconds for a page, from the look-up of the name to its last byte.
TIME_LIMIT = 8.0

# The largest pages of real indexes have some ten MiB.
PAGE_LIMIT = 64 << 20

# How often a download that breaks off is taken up again where it stopped.
TRIES = 4

# A download may take long, but it must come on: this much in this many seconds.
_PROGRESS = 64 << 10
_STALLED = 30.0

# No file of a package is larger.
_FILE_LIMIT = 32 << 30

# PyTorch's index answers 403 for a path that is not there.
_NOT_THERE = frozenset({403, 404, 410})

_BLOCK = 1 << 18
_REDIRECTS = 10


@frozen
class Missing:
    """The index answered that there is no such page."""

    status: int


@dataclass(frozen=True, kw_only=True)
class Network:
    """The real network. `time_limit` is in seconds and bounds a page from beginning to end.

    `certificates` is a file or a directory of them, in place of those of the system; `client_certificate` is
    shown to whoever asks for one. The certificates of `trusted_hosts` are not looked at. `proxies` go by
    scheme, `all` for the others; `no_proxy` lists the hosts that are asked without.
    """

    time_limit: float = TIME_LIMIT
    page_limit: int = PAGE_LIMIT
    certificates: str | None = None
    client_certificate: str | None = None
    trusted_hosts: frozenset[str] = frozenset()
    proxies: Mapping[str, str] = field(default_factory=dict)
    no_proxy: str = ""
    logins: Logins = field(default_factory=Logins)

    @classmethod
    def of(
        cls, environ: Mapping[str, str], *, home: Path | None = None, logins: Logins | None = None
    ) -> Network:
        """Read from variables what pip, uv and curl read from them."""
        if logins is None:
            logins = Logins(netrc=netrc_path(environ, home))
        return cls(
            certificates=next((environ[name] for name in _CERTIFICATES if environ.get(name)), None),
            client_certificate=environ.get("PIP_CLIENT_CERT") or environ.get("SSL_CLIENT_CERT") or None,
            trusted_hosts=frozenset(
                host.lower()
                for name in ("PIP_TRUSTED_HOST", "UV_INSECURE_HOST")
                for host in environ.get(name, "").replace(",", " ").split()
            ),
            proxies=_proxies(environ),
            no_proxy=environ.get("no_proxy") or environ.get("NO_PROXY") or "",
            logins=logins,
        )

    def within(self, seconds: float) -> Network:
        """Return the same network with another limit for a page."""
        return replace(self, time_limit=seconds)

    def text(self, url: str, accept: str, method: str = "GET") -> str | Missing:
        """Return the text behind an address.

        Raises `IndexUnreachable` where no answer came, `IndexFailed` where it was no page.
        """
        until = time.monotonic() + self.time_limit
        if url.startswith("file:"):
            return _read_file(url)

        def ask() -> str | Missing:
            with self._open(url, {"Accept": accept}, method, until=until) as answer:
                if isinstance(answer, Missing):
                    return answer
                return self._read(answer, url, until)

        return self._ask_within_limit(ask, url)

    def explain_silence(self, url: str) -> str | None:
        """Describe in a few words why nothing answers at an address; None if something does.

        Any answer will do, also a refusal: the index is there.
        """
        try:
            self.text(url, "*/*", "HEAD")
        except IndexUnreachable as error:
            return error.why
        except IndexFailed:
            return None
        return None

    def download(self, url: str, path: Path, size: int | None = None) -> None:
        """Write what is behind an address to a file; raises `IndexFailed` where it cannot be had whole.

        A download that breaks off is taken up again where it stopped. With `size` no more is taken.
        """
        path.unlink(missing_ok=True)
        for turn in range(1, TRIES + 1):
            try:
                self._continue(url, path, size or _FILE_LIMIT)
            except IndexFailed:
                if turn == TRIES or not os.path.exists(path):
                    raise
            else:
                return

    def _ask_within_limit(self, ask: Callable[[], str | Missing], url: str) -> str | Missing:
        try:
            # What looks up a name can hold a request for minutes; the thread is left to itself then.
            return wait_for(ask, self.time_limit + 0.5)
        except TimeoutError:
            raise IndexUnreachable(mask_logins(url), f"no answer within {self.time_limit:g} s") from None

    def _read(self, answer: Response, url: str, until: float) -> str:
        content = bytearray()
        try:
            for block in answer.iter_content(_BLOCK):
                content += block
                if len(content) > self.page_limit:
                    raise IndexFailed(
                        f"the page {mask_logins(url)} is too long: more than {self.page_limit >> 20} MiB",
                        hint="check the address: a page of an index is smaller",
                    )
                if time.monotonic() > until:
                    raise IndexUnreachable(
                        mask_logins(url),
                        f"the page was not complete within {self.time_limit:g} s",
                        is_slow=True,
                    )
        except _network_errors() as error:
            raise self._explain(error, url) from None
        return content.decode("utf-8", "replace")

    def _continue(self, url: str, path: Path, limit: int) -> None:
        here = path.stat().st_size if os.path.exists(path) else 0
        with self._open(url, {"Range": f"bytes={here}-"} if here else {}) as answer:
            if isinstance(answer, Missing):
                raise IndexFailed(
                    f"{mask_logins(url)} can no longer be fetched: it answered {answer.status}",
                    hint="look for it in a cache or on a mirror, or lock again without it",
                )
            # Who does not know of ranges begins anew.
            went_on = bool(here) and answer.status_code == 206
            length = answer.headers.get("Content-Length", "")
            left = int(length) if length.isdigit() else None
            with path.open("ab" if went_on else "wb") as file:
                came = self._write(answer, file, url, limit - (here if went_on else 0))
            if left is not None and came < left:
                raise IndexFailed(f"{mask_logins(url)} ended {left - came} bytes early")

    def _write(self, answer: Response, file: Any, url: str, limit: int) -> int:
        came = marked = 0
        since = time.monotonic()
        try:
            while block := answer.raw.read(_BLOCK):
                file.write(block)
                came += len(block)
                if came > limit:
                    raise IndexFailed(
                        f"{mask_logins(url)} is larger than the {limit:,} bytes that were announced"
                    )
                if came - marked >= _PROGRESS:
                    marked, since = came, time.monotonic()
                elif time.monotonic() - since > _STALLED:
                    raise IndexFailed(f"{mask_logins(url)} stopped after {came:,} bytes")
        except _network_errors():
            # What came so far counts; how much is missing is said by whoever knows the length.
            return came
        return came

    @contextmanager
    def _open(
        self, url: str, headers: Mapping[str, str], method: str = "GET", *, until: float | None = None
    ) -> Iterator[Response | Missing]:
        """Ask, following redirects: each host gets the login that is meant for it, and no other."""
        address, login = url, self.logins.find(url)
        asked_keyring = False
        for _ in range(_REDIRECTS):
            with self._session(address) as session:
                answer = self._send(session, method, address, headers=headers, login=login, until=until)
                with answer:
                    if answer.is_redirect:
                        address = urljoin(address, answer.headers["Location"])
                        login = self.logins.find(address)
                        continue
                    if answer.status_code == 401 and not asked_keyring:
                        asked_keyring = True
                        if found := self.logins.ask_keyring(address):
                            login = found
                            continue
                    yield self._judge(answer, address, url, login)
                    return
        raise IndexFailed(f"the index at {mask_logins(url)} redirects in a circle")

    def _send(
        self,
        session: Session,
        method: str,
        address: str,
        *,
        headers: Mapping[str, str],
        login: Login | None,
        until: float | None,
    ) -> Response:
        wait = self.time_limit if until is None else max(0.1, until - time.monotonic())
        try:
            return session.request(
                method,
                mask_logins(address),
                headers={"User-Agent": "torchenv", "Accept-Encoding": "identity", **headers},
                auth=None if login is None else _basic(login),
                timeout=(min(wait, TIME_LIMIT), wait if until is not None else _STALLED),
                stream=True,
                allow_redirects=False,
            )
        except _network_errors() as error:
            raise self._explain(error, address) from None

    def _judge(self, answer: Response, address: str, asked: str, login: Login | None) -> Response | Missing:
        status = answer.status_code
        shown = mask_logins(address)
        if address != asked and host_of(address) != host_of(asked):
            shown = f"{mask_logins(asked)} (redirected to {shown})"
        if status in _NOT_THERE:
            return Missing(status)
        if status == 401:
            raise NotLetIn.of(shown, host_of(address), login)
        if status == 407:
            raise ProxyFailed.of(shown, "the proxy asks for a login (407)", self._proxy(address))
        if status == 511:
            raise IndexFailed(
                f"the network asks to log in before it allows {shown} (511)",
                hint="open a page in a browser and log in to the network, then run again",
            )
        if status >= 400:
            raise IndexFailed(
                f"the index at {shown} answered {status}", hint="try again later, or name a mirror"
            )
        return answer

    def _session(self, url: str) -> Session:
        # 100 ms, which only a command that asks an index pays.
        from requests import Session

        session = Session()
        # Variables were read where settings are read.
        session.trust_env = False
        session.proxies = self._proxies_for(url)
        host = host_of(url)
        is_trusted = bool({host, host.partition(":")[0]} & self.trusted_hosts)
        session.verify = not is_trusted
        if url.startswith("https:") or self.certificates:
            # A file of certificates that is not there is said for any index: the next one wants it.
            session.mount("https://", _adapter(self._secure(is_trusted=is_trusted), self.client_certificate))
        return session

    def _secure(self, *, is_trusted: bool) -> SSLContext:
        import ssl

        from requests.utils import DEFAULT_CA_BUNDLE_PATH
        from urllib3 import disable_warnings
        from urllib3.exceptions import InsecureRequestWarning

        if is_trusted:
            # What the user allowed is not warned of at every page.
            disable_warnings(InsecureRequestWarning)
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        if self.certificates is None:
            context = ssl.create_default_context()
            if not any(map(_exists, ssl.get_default_verify_paths()[:2])):
                # A system without certificates of its own.
                context.load_verify_locations(cafile=DEFAULT_CA_BUNDLE_PATH)
            return context
        named = Path(self.certificates)
        try:
            if os.path.isdir(named):
                return ssl.create_default_context(capath=named)
            return ssl.create_default_context(cafile=named)
        except (OSError, ValueError) as error:
            raise InputError(
                f"the certificates in `{self.certificates}` cannot be read: "
                f"{getattr(error, 'strerror', None) or error}",
                hint="set SSL_CERT_FILE, REQUESTS_CA_BUNDLE or PIP_CERT to a file of certificates",
            ) from None

    def _proxies_for(self, url: str) -> dict[str, str]:
        return {} if self.no_proxy and _is_left_out(url, self.no_proxy) else dict(self.proxies)

    def _proxy(self, url: str) -> str | None:
        proxies = self._proxies_for(url)
        proxy = proxies.get(urlsplit(url).scheme) or proxies.get("all")
        return mask_logins(proxy) if proxy else None

    def _explain(self, error: Exception, url: str) -> IndexFailed:
        """Return what stood in the way: the proxy, the certificate, the name, or silence."""
        shown = mask_logins(url)
        said = " ".join(_chain(error))
        proxy = self._proxy(url)
        if "ProxyError" in said or "SOCKS" in said:
            return ProxyFailed.of(shown, _reason(error), proxy)
        if "certificate" in said.lower():
            return Untrusted.of(shown, said)
        if "Timeout" in said:
            is_slow = "ReadTimeout" in said
            return IndexUnreachable(shown, f"no answer within {self.time_limit:g} s", is_slow=is_slow)
        return IndexUnreachable(shown, _reason(error))


class NotLetIn(IndexFailed):
    """The index wants a login, or another one."""

    @classmethod
    def of(cls, shown: str, host: str, login: Login | None) -> NotLetIn:
        """Make the error for an address that answered 401."""
        name = host.partition(":")[0]
        if login is None:
            return cls(
                f"the index at {shown} asks for a login (401 Unauthorized)",
                hint=f"write `machine {name} login NAME password TOKEN` into ~/.netrc,"
                " or store the login in keyring",
            )
        return cls(
            f"the index at {shown} refuses the login of `{login.user}` (401 Unauthorized)",
            hint=f"check the password or token for {name} in ~/.netrc, in keyring or in the variable",
        )


class ProxyFailed(IndexUnreachable):
    """The proxy stands in the way."""

    @classmethod
    def of(cls, shown: str, why: str, proxy: str | None) -> ProxyFailed:
        """Make the error for an address that the proxy did not lead to."""
        through = f"the proxy {proxy}" if proxy else "a proxy"
        failed = cls(shown, f"{through} failed: {why}")
        failed.hint = "check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY, or list the host in NO_PROXY"
        return failed


class Untrusted(IndexFailed):
    """The certificate of the index cannot be trusted."""

    @classmethod
    def of(cls, shown: str, said: str) -> Untrusted:
        """Make the error for an address whose certificate did not pass."""
        if "expired" in said:
            return cls(
                f"the certificate of {shown} has expired",
                hint="check the clock of this machine, then ask whoever runs the index to renew it",
            )
        if "Hostname mismatch" in said or "doesn't match" in said or "IP address mismatch" in said:
            return cls(
                f"the certificate of {shown} is for another host",
                hint="check the address, and whether the network asks to log in first",
            )
        if (
            "self-signed" in said
            or "self signed" in said
            or "unable to get" in said
            or "unknown" in said.lower()
        ):
            return cls(
                f"the certificate of {shown} was issued by an unknown authority",
                hint="set SSL_CERT_FILE to the certificates of your company",
            )
        return cls(
            f"the certificate of {shown} is not valid: {said}", hint="check the address and SSL_CERT_FILE"
        )


def netrc_path(environ: Mapping[str, str], home: Path | None) -> Path | None:
    """Return the netrc file: the one that NETRC names, else the one in the home directory."""
    if environ.get("NETRC"):
        return Path(environ["NETRC"])
    if home is None:
        return None
    # Windows spells it in its own way.
    return next((path for path in (home / ".netrc", home / "_netrc") if _is_file(path)), None)


# The first of them that is set counts; uv reads the first two, pip and curl the others.
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def _exists(path: str | None) -> bool:
    return path is not None and os.path.exists(Path(path))


def _is_file(path: Path) -> bool:
    try:
        return os.path.isfile(path)
    except OSError:
        return False


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for scheme in ("http", "https", "all"):
        named = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        if named:
            # A proxy without a scheme is one that is spoken to in plain HTTP.
            found[scheme] = named if "://" in named else f"http://{named}"
    return found


def _is_left_out(url: str, no_proxy: str) -> bool:
    import urllib.request

    # The one function of urllib for this looks at a text; others read the process environment.
    bypass: Callable[..., bool] = vars(urllib.request)["proxy_bypass_environment"]
    host = urlsplit(url).hostname or ""
    return bool(bypass(host_of(url), {"no": no_proxy})) or _is_in_network(host, no_proxy)


def _is_in_network(host: str, no_proxy: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        address = ip_address(host)
    except ValueError:
        return False
    for entry in no_proxy.replace(",", " ").split():
        try:
            if "/" in entry and address in ip_network(entry, strict=False):
                return True
        except ValueError:
            continue
    return False


def _basic(login: Login) -> Any:
    from requests.auth import HTTPBasicAuth

    # As text it would be sent in Latin-1, which has no letters for most passwords of the world.
    return HTTPBasicAuth(login.user.encode(), login.password.encode())


def _adapter(context: SSLContext, client_certificate: str | None) -> Any:
    from requests.adapters import HTTPAdapter

    class Adapter(HTTPAdapter):
        """Speaks TLS with certificates that were chosen here."""

        def init_poolmanager(self, *words: Any, **more: Any) -> None:
            super().init_poolmanager(*words, **{**more, "ssl_context": context})

        def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
            return super().proxy_manager_for(proxy, **{**more, "ssl_context": context})

        def cert_verify(self, conn: Any, *_: Any, **__: Any) -> None:
            # The context says already whom to trust; the certificates that requests carries are not added.
            conn.cert_reqs = conn.ca_certs = conn.ca_cert_dir = None
            if client_certificate:
                conn.cert_file = client_certificate

    return Adapter()


def _network_errors() -> tuple[type[Exception], ...]:
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    return (RequestException, HTTPError, OSError, ValueError)


def _chain(error: BaseException | None) -> Iterator[str]:
    """Yield the names and words of an error and of all that it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield f"{type(error).__name__}: {error}"
        inner = getattr(error, "reason", None) or next(
            (word for word in error.args if isinstance(word, BaseException)), None
        )
        error = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__


def _reason(error: BaseException) -> str:
    """Return the words of the innermost error, which a person understands."""
    innermost: BaseException = error
    seen: set[int] = set()
    while id(innermost) not in seen:
        seen.add(id(innermost))
        inner = getattr(innermost, "reason", None) or next(
            (word for word in innermost.args if isinstance(word, BaseException)), None
        )
        inner = inner if isinstance(inner, BaseException) else innermost.__cause__
        if inner is None:
            break
        innermost = inner
    if isinstance(innermost, OSError) and innermost.strerror:
        return innermost.strerror
    return mask_logins(str(innermost)) or type(innermost).__name__


def _read_file(url: str) -> str | Missing:
    from urllib.request import url2pathname

    path = Path(url2pathname(urlsplit(url).path))
    try:
        if os.path.isdir(path):
            path /= "index.html"
        if path.stat().st_size > PAGE_LIMIT:
            raise IndexFailed(f"the page {path} has more than {PAGE_LIMIT >> 20} MiB")
        return path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return Missing(404)
    except OSError as error:
        raise IndexFailed(f"the page {path} cannot be read: {error.strerror or error}") from None
