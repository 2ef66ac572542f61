"""A file is brought whole or not at all, also over a connection that breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from torchenv.errors import IndexFailed
from torchenv.index.http import Network

CONTENT = bytes(range(256)) * 64


class Breaking(ThreadingHTTPServer):
    """Serves one file, and hangs up after a part of it as often as `breaks` says."""

    daemon_threads = True

    def __init__(self, *, breaks: int, ranges: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.breaks = breaks
        self.ranges = ranges
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/torch.whl"


class Handler(BaseHTTPRequestHandler):
    server: Breaking

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        if self.path != "/torch.whl":
            self.send_error(403)
            return
        # bytes=100-
        partly = wanted is not None and self.server.ranges
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and partly else 0
        rest = CONTENT[start:]
        self.send_response(206 if partly else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if self.server.breaks:
            self.server.breaks -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Any]:
    servers: list[Breaking] = []

    def start(*, breaks: int = 0, ranges: bool = True) -> Breaking:
        server = Breaking(breaks=breaks, ranges=ranges)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    yield start
    for running in servers:
        running.shutdown()
        running.server_close()


def test_a_download_that_breaks_off_goes_on_where_it_stopped(serve: Any, tmp_path: Path) -> None:
    server = serve(breaks=2)
    Network().download(server.url, tmp_path / "torch.whl")
    assert (tmp_path / "torch.whl").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=8192-", "bytes=12288-"]


def test_where_an_index_knows_no_ranges_it_begins_anew(serve: Any, tmp_path: Path) -> None:
    server = serve(breaks=1, ranges=False)
    Network().download(server.url, tmp_path / "torch.whl")
    assert (tmp_path / "torch.whl").read_bytes() == CONTENT


def test_what_never_comes_whole_is_an_error(serve: Any, tmp_path: Path) -> None:
    server = serve(breaks=99)
    with pytest.raises(IndexFailed) as caught:
        Network().download(server.url, tmp_path / "torch.whl")
    assert str(caught.value) == f"{server.url} ended 1024 bytes early"
    assert len(server.asked) == 4


def test_a_file_that_is_gone_is_told_with_its_address(serve: Any, tmp_path: Path) -> None:
    url = serve().url.replace("torch.whl", "gone.whl")
    with pytest.raises(IndexFailed) as caught:
        Network().download(url, tmp_path / "gone.whl")
    assert str(caught.value) == f"{url} can no longer be fetched: it answered 403"
    assert not (tmp_path / "gone.whl").exists()
