"""Package indexes that do not answer as they should."""

from __future__ import annotations

import gzip
import random
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from scripts.faults.scene import Scene, refuse_changes
from scripts.faults.tally import Tally, require
from tests.support.index import Index
from tests.support.world import world

# Seconds that a plan may take, whatever an index does, beside what the machine is busy with.
_PLAN_LIMIT = 30.0

Answer = tuple[int, str, bytes]


class _Faulty(Index):
    """The wheels of another index, of which some answers go wrong."""

    def __init__(self, wheels: Index) -> None:
        super().__init__()
        for place in wheels.places():
            self.add(place, *wheels.wheels(place))
        self.fault: Callable[[_Handler, Answer], None] | None = None
        self.is_struck: Callable[[str], bool] = lambda _: True
        self.over = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    index: _Faulty

    def do_GET(self) -> None:
        answer = self.index.answer(self.path.partition("?")[0], self.headers.get("Accept", ""))
        if self.index.fault is not None and self.index.is_struck(self.path):
            with suppress(OSError, ValueError):
                self.index.fault(self, answer)
            self.close_connection = True
            return
        self.send(*answer)

    def do_HEAD(self) -> None:
        self.do_GET()

    def send(self, status: int, kind: str, content: bytes, **more: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **more}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is no trouble."""


@contextmanager
def _serving(index: _Faulty) -> Iterator[_Faulty]:
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"index": index}))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    index.root = f"http://127.0.0.1:{server.server_port}"
    try:
        yield index
    finally:
        index.over.set()
        server.shutdown()
        server.server_close()


def _status(number: int) -> Callable[[_Handler, Answer], None]:
    return lambda handler, _: handler.send(number, "text/plain", b"no")


def _body(content: bytes, kind: str = "text/html") -> Callable[[_Handler, Answer], None]:
    return lambda handler, _: handler.send(200, kind, content)


def _cut(handler: _Handler, answer: Answer) -> None:
    status, kind, content = answer
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[: len(content) // 2])
    handler.connection.shutdown(socket.SHUT_RDWR)


def _cut_in_silence(handler: _Handler, answer: Answer) -> None:
    # As long as it says it is, and half of what it was.
    status, kind, content = answer
    handler.send(status, kind, content[: len(content) // 2])


def _hang_up(handler: _Handler, _: Answer) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def _no_http(handler: _Handler, _: Answer) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.9\r\n" * 3)


def _endless_header(handler: _Handler, _: Answer) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for n in range(100_000):
        handler.wfile.write(f"X-{n}: {'y' * 500}\r\n".encode())


def _endless(handler: _Handler, answer: Answer) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", answer[1])
    handler.end_headers()
    for _ in range(3000):
        handler.wfile.write(b"<a href='torch.whl'>torch</a>" * 4096)


def _drip(handler: _Handler, answer: Answer) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", answer[1])
    handler.end_headers()
    for _ in range(600):
        if handler.index.over.wait(0.05):
            return
        handler.wfile.write(b".")


def _bomb(handler: _Handler, answer: Answer) -> None:
    handler.send(200, answer[1], gzip.compress(bytes(300 << 20), 9), Content_Encoding="gzip")


def _no_gzip(handler: _Handler, answer: Answer) -> None:
    handler.send(*answer, Content_Encoding="gzip")


def _circle(handler: _Handler, _: Answer) -> None:
    handler.send(302, "text/plain", b"", Location=handler.path)


def _elsewhere(handler: _Handler, _: Answer) -> None:
    handler.send(302, "text/plain", b"", Location="http://127.0.0.1:9/nothing")


def _to_a_file(handler: _Handler, _: Answer) -> None:
    handler.send(302, "text/plain", b"", Location="file:///etc/passwd")


def _other_bytes(handler: _Handler, answer: Answer) -> None:
    status, kind, content = answer
    handler.send(status, kind, bytes(byte ^ 1 for byte in content))


_PORTAL = b"<!DOCTYPE html><html><title>Welcome to the hotel</title><form>Room</form></html>"
_JSON = "application/vnd.pypi.simple.v1+json"

FAULTS: dict[str, Callable[[_Handler, Answer], None]] = {
    **{f"status {number}": _status(number) for number in (204, 400, 401, 403, 404, 407, 418, 429, 500, 503)},
    "half of the answer": _cut,
    "half of the answer, unsaid": _cut_in_silence,
    "no answer": _hang_up,
    "another protocol": _no_http,
    "headers without end": _endless_header,
    "a page without end": _endless,
    "a page in drops": _drip,
    "what unpacks to 300 MiB": _bomb,
    "gzip that is none": _no_gzip,
    "a redirect in a circle": _circle,
    "a redirect to nothing": _elsewhere,
    "a redirect to a file": _to_a_file,
    "other bytes": _other_bytes,
    "a captive portal": _body(_PORTAL),
    "nothing": _body(b""),
    "JSON that is none": _body(b"{[", _JSON),
    "JSON of another kind": _body(b'{"files": {"a": 1}, "meta": []}', _JSON),
    "deep JSON": _body(b"[" * 100_000, _JSON),
    "a number too long": _body(b'{"files": [{"size": ' + b"9" * 5000 + b"}]}", _JSON),
    "links that lead out": _body(b"<a href='../../../../etc/passwd#sha256=0'>torch-2.15.0-../x.whl</a>"),
    "zeros": _body(bytes(1 << 16), "application/octet-stream"),
}

COMMANDS = (
    ("plan", "2.15", "--backend", "cu132"),
    ("create", "2.15", "--backend", "cu132"),
    ("lock",),
    ("sync", "ci"),
    ("fetch", "ci", "wheels"),
)

_STRUCK: dict[str, Callable[[str], bool]] = {
    "every answer": lambda _: True,
    "wheels": lambda path: path.endswith(".whl"),
    "pages": lambda path: path.endswith("/"),
    "pages of torch's index": lambda path: path.startswith("/whl") and path.endswith("/"),
    "metadata": lambda path: path.endswith(".metadata"),
}


def run_indexes(directory: Path, tries: int, seed: int) -> Tally:
    """Ask indexes of which some answers go wrong."""
    chance, tally = random.Random(seed), Tally("index faults", seed)
    with _serving(_Faulty(world())) as index:
        scene = Scene(directory, index).make()
        scene.succeed("lock")
        # What an index fails to give must not come from what was fetched before.
        scene.environ |= {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "3"}
        for n in range(tries):
            fault, words = list(FAULTS)[n % len(FAULTS)], COMMANDS[(n + n // len(FAULTS)) % len(COMMANDS)]
            struck = chance.choice(list(_STRUCK))
            what = f"try {n} of seed {seed}: `torchenv {' '.join(words)}` with {fault} for {struck}"
            with tally.trying(words[0], what):
                _try(scene, index, fault, struck, words)
    return tally


def _try(scene: Scene, index: _Faulty, fault: str, struck: str, words: tuple[str, ...]) -> None:
    shutil.rmtree(scene.directory / "cache", ignore_errors=True)
    shutil.rmtree(scene.project / "wheels", ignore_errors=True)
    (scene.root / "index-answers.json").unlink(missing_ok=True)
    locks = {path: path.read_bytes() for path in scene.project.glob("*.lock.toml")}
    locks |= {path: path.read_bytes() for path in scene.project.glob("pylock.*")}
    around, environments = scene.digest(), scene.digest_environments()
    index.fault, index.is_struck = FAULTS[fault], _STRUCK[struck]
    index.over.clear()
    try:
        ended = scene.run(*words)
    finally:
        index.fault = None
        index.over.set()
    ended.refuse_defect()
    require(words[0] != "plan" or ended.seconds < _PLAN_LIMIT, f"the plan took {ended.seconds:.0f} s")
    refuse_changes(around, scene.digest())
    for number, digest in environments.items():
        refuse_changes(digest, scene.digest_environments()[number])
    if ended.code != 0:
        for path, content in locks.items():
            require(path.read_bytes() == content, f"{path.name} has changed")
    for number in scene.digest_environments().keys() - environments.keys():
        scene.succeed("remove", str(number), "--force", "--offline")
    scene.succeed("rollback")
    scene.prove_sound()
    scene.prove_clear()
