"""A loopback server that is PyTorch's index and a package index at once, and keeps count."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from tests.support.wheels import Wheel

JSON_LISTING = "application/vnd.pypi.simple.v1+json"


class Index:
    """Wheels by place: `whl/cu132`, `whl/cpu`, … as PyTorch serves them; `simple` as a registry.

    PyTorch's places list in HTML, without dates, `+` written as %2B, hashes in the fragment; what
    they lack answers 403. `simple` gives JSON with dates and the metadata beside each wheel.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.seconds_before_wheels = 0.0
        self._places: defaultdict[str, dict[str, Wheel]] = defaultdict(dict)
        self._damaged: set[str] = set()
        self.root = ""
        self.login: tuple[str, str] | None = None

    @property
    def torch_root(self) -> str:
        """What stands in place of PyTorch's `…/whl`."""
        return f"{self.root}/whl"

    @property
    def packages(self) -> str:
        """What stands in place of the default package index."""
        return f"{self.root}/simple"

    def backend(self, name: str) -> str:
        return f"{self.torch_root}/{name}"

    def add(self, place: str, *wheels: Wheel) -> None:
        for wheel in wheels:
            self._places[place][wheel.file_name] = wheel

    def places(self) -> tuple[str, ...]:
        return tuple(self._places)

    def wheels(self, place: str) -> tuple[Wheel, ...]:
        return tuple(self._places[place].values())

    def remove(self, place: str, project: str) -> None:
        held = self._places[place]
        self._places[place] = {name: wheel for name, wheel in held.items() if wheel.project != project}

    def damage(self, file_name: str) -> None:
        """Serve other bytes under this name than those whose hash is listed."""
        self._damaged.add(file_name)

    def mend(self, file_name: str) -> None:
        """Serve the right bytes again."""
        self._damaged.discard(file_name)

    def held(self, place: str) -> list[Wheel]:
        """Return the wheels of a place."""
        return list(self._places[place].values())

    def served(self, place: str, file_name: str) -> bytes:
        """Return the bytes that are served under this name."""
        wheel = self._places[place][file_name]
        if file_name not in self._damaged:
            return wheel.content
        # The time of the first member: as long as before, and still a zip.
        return wheel.content[:10] + b"\x01" + wheel.content[11:]

    def wheels_fetched(self) -> list[str]:
        """The wheels that were asked for since the last `forget`, whole or in part."""
        return [path.rpartition("/")[2] for path in self.requests if path.endswith(".whl")]

    def asked_for(self, place: str, project: str) -> bool:
        return any(path.startswith(f"/{place}/{project}/") for path in self.requests)

    def lets_in(self, authorization: str | None) -> bool:
        """Whether a request may be answered; `login` None lets everybody in."""
        if self.login is None:
            return True
        pair = b64encode(":".join(self.login).encode()).decode()
        return authorization == f"Basic {pair}"

    def forget(self) -> None:
        self.requests.clear()

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Return the status, content type and body for one path."""
        place, _, last = unquote(path).strip("/").rpartition("/")
        lacking = 403 if place.startswith("whl") else 404
        if last.endswith(".whl"):
            time.sleep(self.seconds_before_wheels)
        if last.endswith((".whl", ".metadata", ".tar.gz")):
            wheel = self._places[place].get(last.removesuffix(".metadata"))
            if wheel is None:
                return lacking, "text/plain", b"no such file"
            if last.endswith(".metadata"):
                return 200, "text/plain", wheel.metadata
            return 200, "application/octet-stream", self.served(place, last)
        wheels = [item for item in self._places[place].values() if item.project == last]
        if not wheels:
            return lacking, "text/plain", b"no such project"
        if place == "simple" and JSON_LISTING in accept:
            return 200, JSON_LISTING, _json_listing(last, wheels)
        return 200, "text/html", _html_listing(place, wheels)


def _html_listing(place: str, wheels: list[Wheel]) -> bytes:
    lines = []
    for wheel in wheels:
        python = wheel.requires_python.replace(">", "&gt;").replace("<", "&lt;")
        attribute = f' data-requires-python="{python}"' if python else ""
        attribute += ' data-yanked=""' if wheel.yanked else ""
        href = f"/{place}/{quote(wheel.file_name)}#sha256={wheel.sha256}"
        lines.append(f'<a href="{href}"{attribute}>{wheel.file_name}</a><br/>')
    return "\n".join(["<!DOCTYPE html>", "<html><body>", *lines, "</body></html>"]).encode()


def _json_listing(project: str, wheels: list[Wheel]) -> bytes:
    files = [
        {
            "filename": wheel.file_name,
            "url": f"/simple/{quote(wheel.file_name)}",
            "hashes": {"sha256": wheel.sha256},
            "requires-python": wheel.requires_python or None,
            "size": len(wheel.content),
            "upload-time": f"{wheel.uploaded}T00:00:00Z",
            "yanked": wheel.yanked,
            "core-metadata": wheel.file_name.endswith(".whl"),
        }
        for wheel in wheels
    ]
    versions = sorted({wheel.version for wheel in wheels})
    listing = {"meta": {"api-version": "1.1"}, "name": project, "files": files}
    return json.dumps({**listing, "versions": versions}).encode()


@contextmanager
def serving(index: Index) -> Iterator[Index]:
    """Serve the index on a loopback port for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(body=True)

        def do_HEAD(self) -> None:
            self._send(body=False)

        def _send(self, *, body: bool) -> None:
            if self.path.startswith("http://"):
                # Asked as a proxy, the server answers for every host alike.
                self.path = "/" + self.path.split("/", 3)[3]
            if index.lets_in(self.headers.get("Authorization")):
                status, kind, content = index.answer(self.path, self.headers.get("Accept", ""))
            else:
                status, kind, content = 401, "text/plain", b"who are you?"
            total = len(content)
            tag = f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
            if status == 200 and self.headers.get("If-None-Match") == tag:
                status, content = 304, b""
            self.send_response(206 if status == 200 and "Range" in self.headers else status)
            if status == 200 and "Range" in self.headers:
                # bytes=100-200, bytes=100-, bytes=-200
                first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
                start = int(first) if first else max(0, total - int(last))
                end = min(int(last), total - 1) if first and last else total - 1
                content = content[start : end + 1]
                self.send_header("Content-Range", f"bytes {start}-{end}/{total}")
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="mirror"')
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", tag)
            if self.path.startswith("/simple/") and self.path.endswith(".whl"):
                self.send_header("Cache-Control", "max-age=365000000, immutable, public")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body and status != 304:
                index.requests.append(self.path)
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            # A client that hangs up in the middle of an answer is no trouble.
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    index.root = f"http://127.0.0.1:{server.server_port}"
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
