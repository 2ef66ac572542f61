"""What stands between torchenv and an index is said as what it is, and nobody waits for it."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from torchenv.errors import IndexFailed, IndexUnreachable
from torchenv.index.http import Missing, Network, NotLetIn, ProxyFailed, Untrusted
from torchenv.index.logins import Logins
from torchenv.index.pages import NotAnIndex, fetcher, project
from torchenv.index.together import ask_together
from torchenv.system.addresses import Login
from torchenv.system.process import Command, Completed

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is no trouble."""


@contextmanager
def answering(answer: Answer, *, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[Any]]]:
    """Serve on a loopback port, and keep the headers of every request."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers)
            answer(self)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def send(handler: BaseHTTPRequestHandler, body: str, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body.encode())))
    handler.end_headers()
    handler.wfile.write(body.encode())


# Limits.


def test_a_page_that_does_not_end_is_not_read_to_the_end() -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b"<a href='torch.whl'>torch</a>" * 4096)

    with answering(endless) as (root, _), pytest.raises(IndexFailed) as caught:
        Network(page_limit=1 << 20).text(f"{root}/torch/", "text/html")
    assert str(caught.value) == f"the page {root}/torch/ is too long: more than 1 MiB"


def test_a_page_that_comes_in_drops_is_not_waited_for() -> None:
    done = threading.Event()

    def dripping(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not done.wait(0.02):
            handler.wfile.write(b".")

    with answering(dripping) as (root, _), pytest.raises(IndexUnreachable) as caught:
        Network(time_limit=0.3).text(f"{root}/torch/", "text/html")
    done.set()
    assert "within 0.3 s" in caught.value.why


def test_silence_is_not_waited_for_and_an_answer_of_any_kind_is_none() -> None:
    with answering(lambda _: time.sleep(2)) as (root, _):
        assert Network(time_limit=0.2).explain_silence(root) == "no answer within 0.2 s"
    with answering(lambda handler: send(handler, "", 500)) as (root, _):
        assert Network().explain_silence(root) is None
    assert Network().explain_silence("http://127.0.0.1:9/whl") == "Connection refused"


def test_a_file_that_is_larger_than_announced_is_refused(tmp_path: Path) -> None:
    with (
        answering(lambda handler: send(handler, "x" * 1000)) as (root, _),
        pytest.raises(IndexFailed) as caught,
    ):
        Network().download(f"{root}/torch.whl", tmp_path / "torch.whl", 100)
    assert str(caught.value) == f"{root}/torch.whl is larger than the 100 bytes that were announced"


def test_the_first_failure_ends_what_is_asked_together() -> None:
    def ask(number: int) -> int:
        if number == 1:
            raise IndexFailed("no")
        return number

    assert ask_together(abs, [-3, -1, -2]) == [3, 1, 2]
    with pytest.raises(IndexFailed, match="no"):
        ask_together(ask, [0, 1, 2])


# Logins.

SECRET = "p@ss:wörd/"


def wants_login(handler: BaseHTTPRequestHandler) -> None:
    from base64 import b64encode

    pair = b64encode(f"user:{SECRET}".encode()).decode()
    if handler.headers.get("Authorization") == f"Basic {pair}":
        send(handler, "<h1>Links for torch</h1>")
    else:
        send(handler, "who are you?", 401)


def test_a_login_that_is_missing_or_wrong_is_said_as_that() -> None:
    with answering(wants_login) as (root, _):
        with pytest.raises(NotLetIn) as caught:
            Network().text(f"{root}/torch/", "*/*")
        assert str(caught.value) == f"the index at {root}/torch/ asks for a login (401 Unauthorized)"
        host = root.removeprefix("http://")
        wrong = Network(logins=Logins(given={host: Login("user", "other")}))
        with pytest.raises(NotLetIn, match="refuses the login of `user`"):
            wrong.text(f"{root}/torch/", "*/*")
        right = Network(logins=Logins(given={host: Login("user", SECRET)}))
        assert right.text(f"{root}/torch/", "*/*") == "<h1>Links for torch</h1>"


def test_a_redirect_to_another_host_gets_no_login() -> None:
    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        send(handler, "<h1>Links for torch</h1>")

    with ExitStack() as servers:
        other, asked_other = servers.enter_context(answering(elsewhere))
        root, asked = servers.enter_context(
            answering(lambda handler: send(handler, "", 302, Location=f"{other}/torch/"))
        )
        host = root.removeprefix("http://")
        network = Network(logins=Logins(given={host: Login("user", SECRET)}))
        assert network.text(f"{root}/torch/", "*/*") == "<h1>Links for torch</h1>"
    assert "Authorization" in asked[0]
    assert "Authorization" not in asked_other[0]


def test_the_default_entry_of_netrc_goes_only_to_hosts_that_the_user_named(tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine mine.example login a password b\ndefault login user password secret\n", "utf-8")
    logins = Logins(netrc=netrc, named=frozenset({"mirror.example"}))
    assert logins.find("https://mirror.example/whl") == Login("user", "secret")
    assert logins.find("https://mine.example/whl") == Login("a", "b")
    assert logins.find("https://other.example/whl") is None
    assert logins.has_default


def test_keyring_is_asked_once_where_an_index_refuses() -> None:
    started: list[Command] = []

    def keyring(command: Command, *, timeout: float | None = None) -> Completed:
        started.append(command)
        found = command.argv[2].startswith("127.0.0.1:")
        return Completed(command, 0 if found else 1, f"user\n{SECRET}\n" if found else "", "")

    with answering(wants_login) as (root, _):
        network = Network(logins=Logins(run=keyring))
        for _turn in range(2):
            assert network.text(f"{root}/torch/", "*/*") == "<h1>Links for torch</h1>"
    host = root.removeprefix("http://")
    assert [command.argv for command in started] == [
        ("keyring", "get", f"{root}/torch/", "--mode", "creds"),
        ("keyring", "get", host, "--mode", "creds"),
    ]


# Proxies and certificates.


def test_a_proxy_is_used_but_for_the_hosts_that_are_left_out() -> None:
    with answering(lambda handler: send(handler, handler.path)) as (proxy, _):
        variables = {"ALL_PROXY": proxy, "NO_PROXY": "other.example, 10.0.0.0/8"}
        network = Network.of(variables)
        assert network.text("http://mirror.example/torch/", "*/*") == "http://mirror.example/torch/"
        assert network._proxies_for("http://a.other.example/") == {}
        assert network._proxies_for("http://10.1.2.3:8080/") == {}
        assert network._proxies_for("http://11.1.2.3/") == {"all": proxy}


def test_a_proxy_that_fails_is_named_without_its_login() -> None:
    network = Network.of({"HTTP_PROXY": "http://user:secret@127.0.0.1:9"})
    with pytest.raises(ProxyFailed) as caught:
        network.text("http://mirror.example/torch/", "*/*")
    assert str(caught.value) == (
        "the index at http://mirror.example/torch/ cannot be reached:"
        " the proxy http://127.0.0.1:9 failed: Connection refused"
    )
    assert caught.value.hint == ("check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY, or list the host in NO_PROXY")


def certificate(directory: Path, *, until: datetime) -> Path:
    """Make a certificate for 127.0.0.1 that signs itself, with its key in the same file."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mirror.example")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(until - timedelta(days=30))
        .not_valid_after(until)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = directory / "mirror.pem"
    form = serialization.PrivateFormat.PKCS8
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


def serving_with(path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def test_a_certificate_of_an_unknown_issuer_is_said_and_a_file_or_trust_opens_the_way(tmp_path: Path) -> None:
    path = certificate(tmp_path, until=datetime.now(UTC) + timedelta(days=1))
    page = "<h1>Links for torch</h1>"
    with answering(lambda handler: send(handler, page), tls=serving_with(path)) as (root, _):
        with pytest.raises(Untrusted) as caught:
            Network().text(f"{root}/torch/", "*/*")
        assert str(caught.value) == f"the certificate of {root}/torch/ was issued by an unknown authority"
        assert caught.value.hint == "set SSL_CERT_FILE to the certificates of your company"
        for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"):
            assert Network.of({variable: str(path)}).text(f"{root}/torch/", "*/*") == page
        assert Network.of({"PIP_TRUSTED_HOST": "127.0.0.1"}).text(f"{root}/torch/", "*/*") == page


def test_a_certificate_that_has_expired_is_said_as_that(tmp_path: Path) -> None:
    path = certificate(tmp_path, until=datetime.now(UTC) - timedelta(days=1))
    with (
        answering(lambda handler: send(handler, ""), tls=serving_with(path)) as (root, _),
        pytest.raises(Untrusted) as caught,
    ):
        Network.of({"SSL_CERT_FILE": str(path)}).text(f"{root}/torch/", "*/*")
    assert str(caught.value) == f"the certificate of {root}/torch/ has expired"


# What is no index.

PORTAL = "<html><title>Guest Wi-Fi</title><form action='/login'><a href='/terms'>Terms</a></form></html>"


def test_the_page_of_a_captive_portal_is_no_index() -> None:
    with (
        answering(lambda handler: send(handler, PORTAL, Content_Type="text/html")) as (root, _),
        pytest.raises(NotAnIndex) as caught,
    ):
        project(f"{root}/whl/cpu", "torch", fetcher(Network()))
    assert str(caught.value) == (
        f"{root}/whl/cpu/torch/ answers with a web page that lists no files: it is no package index"
    )
    assert caught.value.hint == "check the address, and whether this network asks to log in first"


def test_an_index_in_a_folder_is_read_too(tmp_path: Path) -> None:
    page = tmp_path / "torch"
    page.mkdir()
    (page / "index.html").write_text("<a href='torch-2.15.0-py3-none-any.whl'>torch</a>", "utf-8")
    network = Network()
    found = project(tmp_path.as_uri(), "torch", fetcher(network))
    assert found is not None
    assert [str(version) for version in found.versions] == ["2.15.0"]
    assert network.text(f"{tmp_path.as_uri()}/numpy/", "*/*") == Missing(404)
