"""Project pages of an index, read into wheels that fit a Python and a platform or do not."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from packaging.version import Version

from torchenv.errors import ToolFailed
from torchenv.index.http import Missing, Network
from torchenv.index.logins import Logins
from torchenv.index.pages import Fetch, ProjectPage, fetcher, project

ROOT = "https://mirror.example/whl"
HTML = """<!DOCTYPE html><html><body><h1>Links for torch</h1>
<a href="/whl/cu132/torch-2.15.0%2Bcu132-cp312-cp312-manylinux_2_28_x86_64.whl#sha256=aa"
   data-requires-python="&gt;=3.11" data-dist-info-metadata="sha256=bb">torch-2.15.0+cu132-cp312…</a><br/>
<a href="/whl/cu132/torch-2.15.0%2Bcu132-cp314-cp314t-win_amd64.whl#sha256=aa">torch</a><br/>
<a href="/whl/cpu/torch-2.15.0-cp313-none-macosx_14_0_arm64.whl">torch</a><br/>
<a href="/whl/cpu/torch-2.10.0-3-cp311-cp311-manylinux_2_28_x86_64.whl">torch</a><br/>
<a href='/whl/cu126/torch-2.14.1%2Bcu126-cp312-cp312-linux_aarch64.whl' data-yanked="broken">torch</a><br/>
<a href="/whl/cu126/torch-2.14.1.tar.gz">torch</a><br/>
<a href="/whl/cu126/torch_not_really.whl">torch</a><br/>
</body></html>
"""
JSON = """{"meta": {"api-version": "1.1"}, "name": "torchvision", "files": [
  {"filename": "torchvision-0.29.2-py3-none-manylinux_2_28_x86_64.whl", "url": "x", "hashes": {},
   "requires-python": ">=3.11", "yanked": false},
  {"filename": "torchvision-0.29.1-cp312-cp312-win_amd64.whl", "url": "x", "hashes": {}, "yanked": "broken"},
  {"filename": "torchvision-0.29.2.tar.gz", "url": "x", "hashes": {}}]}
"""


def html() -> ProjectPage:
    return ProjectPage.parse(HTML, f"{ROOT}/cu132/torch/", "torch")


def test_an_html_page_gives_its_wheels_without_yanked_ones_and_archives() -> None:
    assert [wheel.filename for wheel in html().wheels] == [
        "torch-2.15.0+cu132-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.15.0+cu132-cp314-cp314t-win_amd64.whl",
        "torch-2.15.0-cp313-none-macosx_14_0_arm64.whl",
        "torch-2.10.0-3-cp311-cp311-manylinux_2_28_x86_64.whl",
    ]


def test_an_attribute_whose_marks_are_not_escaped_is_not_lost() -> None:
    text = '<a href=torch-2.15.0-py3-none-any.whl data-requires-python=">=3.99">torch</a>'
    page = ProjectPage.parse(text, ROOT, "torch")
    assert [str(wheel.requires_python) for wheel in page.wheels] == [">=3.99"]
    assert not page.has(Version("2.15.0"), python="3.12", platform="linux-x86_64")


def test_links_start_from_the_base_that_a_page_names() -> None:
    text = '<base href="https://files.example/w/"><a href="torch-2.15.0-py3-none-any.whl#sha256=aa">torch</a>'
    (file,) = ProjectPage.parse(text, f"{ROOT}/torch/", "torch").files
    assert file.url == "https://files.example/w/torch-2.15.0-py3-none-any.whl"


def test_a_json_page_gives_its_wheels_too() -> None:
    page = ProjectPage.parse(JSON, f"{ROOT}/cu132/torchvision/", "torchvision")
    assert page.versions == {Version("0.29.2")}


@pytest.mark.parametrize(
    ("version", "python", "platform", "there"),
    [
        ("2.15.0+cu132", "3.12", "linux-x86_64", True),
        ("2.15.0", "3.12", "linux-x86_64", True),
        ("2.15.0+cu134", "3.12", "linux-x86_64", False),
        ("2.15.0+cu132", "3.13", "linux-x86_64", False),
        ("2.15.0+cu132", "3.12", "linux-aarch64", False),
        ("2.15.0+cu132", "3.14t", "windows-x86_64", True),
        ("2.15.0+cu132", "3.14", "windows-x86_64", False),
        ("2.15.0", "3.13", "darwin-arm64", True),
        ("2.10.0", "3.11", "linux-x86_64", True),
        ("2.14.1+cu126", "3.12", "linux-aarch64", False),
    ],
)
def test_a_page_has_a_version_where_one_of_its_wheels_installs(
    version: str, python: str, platform: str, *, there: bool
) -> None:
    assert html().has(Version(version), python=python, platform=platform) is there


@pytest.mark.parametrize(
    ("filename", "python", "fits"),
    [
        ("torchvision-0.29.2-py3-none-manylinux_2_28_x86_64.whl", "3.14t", True),
        ("torchvision-0.29.2-py3-none-any.whl", "3.12", True),
        ("x-1-cp311-abi3-manylinux2014_x86_64.whl", "3.12", True),
        ("x-1-cp311-abi3-manylinux2014_x86_64.whl", "3.10", False),
        ("x-1-cp311-abi3-manylinux2014_x86_64.whl", "3.13t", False),
        ("x-1-cp315-abi3t-linux_x86_64.whl", "3.15t", True),
        ("x-1-cp312-cp312-musllinux_1_2_x86_64.whl", "3.12", False),
        ("x-1-cp312-cp312-manylinux_2_28_s390x.whl", "3.12", False),
    ],
)
def test_wheels_for_many_pythons_fit_those_they_are_made_for(
    filename: str, python: str, *, fits: bool
) -> None:
    name = filename.partition("-")[0]
    page = ProjectPage.parse(f'<a href="{filename}">x</a>', ROOT, name)
    assert any(wheel.fits(python, "linux-x86_64") for wheel in page.wheels) is fits


def test_requires_python_counts_where_the_tags_leave_it_open() -> None:
    page = ProjectPage.parse(JSON, ROOT, "torchvision")
    assert page.has(Version("0.29.2"), python="3.11", platform="linux-x86_64")
    assert not page.has(Version("0.29.2"), python="3.10", platform="linux-x86_64")


def test_a_project_is_asked_of_the_index_of_its_backend() -> None:
    asked = []

    def fetch(url: str) -> str | Missing:
        asked.append(url)
        return HTML if "cu132" in url else Missing(403)

    assert project(f"{ROOT}/cu132/", "torch", fetch) == html()
    assert project(f"{ROOT}/cu999", "Torch_Vision", fetch) is None
    assert project(ROOT, "torch", fetch) is None
    assert asked == [f"{ROOT}/cu132/torch/", f"{ROOT}/cu999/torch-vision/", f"{ROOT}/torch/"]


@pytest.mark.parametrize("text", ["{", '{"name": "torch"}', '{"files": [1]}', '{"files": [{}]}'])
def test_a_page_that_is_not_json_as_promised_is_an_error_of_the_index(text: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        ProjectPage.parse(text, "https://user:secret@mirror.example/whl/torch/", "torch")
    assert caught.value.message == (
        "the index page https://mirror.example/whl/torch/ is not what PEP 691 describes"
    )


class Index(BaseHTTPRequestHandler):
    """Answers as PyTorch's index does: 403 for what is not there; `/private/` wants a login."""

    def do_GET(self) -> None:
        status = {"/whl/torch/": 200, "/whl/gone/": 403, "/private/torch/": 401}.get(self.path, 500)
        login = self.headers.get("Authorization")
        if self.path.startswith("/private/") and login == "Basic dXNlcjpzM2NyZXQv":
            status = 200
        self.send_response(status)
        self.end_headers()
        self.wfile.write(f"{self.path} {self.headers['Accept'].partition(',')[0]}".encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Index)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def fetch() -> Fetch:
    return fetcher(Network(time_limit=5))


def test_a_page_is_fetched_and_json_is_preferred(server: HTTPServer, fetch: Fetch) -> None:
    url = f"http://127.0.0.1:{server.server_port}/whl/torch/"
    assert fetch(url) == "/whl/torch/ application/vnd.pypi.simple.v1+json"


def test_forbidden_means_that_it_is_not_there(server: HTTPServer, fetch: Fetch) -> None:
    assert fetch(f"http://127.0.0.1:{server.server_port}/whl/gone/") == Missing(403)


def test_a_login_in_the_address_is_sent_and_never_shown(server: HTTPServer, fetch: Fetch) -> None:
    place = f"127.0.0.1:{server.server_port}/private/torch/"
    assert fetch(f"http://user:s3cret%2F@{place}") == "/private/torch/ application/vnd.pypi.simple.v1+json"
    with pytest.raises(ToolFailed) as caught:
        fetch(f"http://user:wrong@{place}")
    assert caught.value.message == (
        f"the index at http://{place} refuses the login of `user` (401 Unauthorized)"
    )


def test_a_login_is_read_from_netrc(server: HTTPServer, tmp_path: Path) -> None:
    file = tmp_path / "netrc"
    file.write_text("machine 127.0.0.1 login user password s3cret/\n", encoding="utf-8")
    own = fetcher(Network(logins=Logins(netrc=file)))
    assert own(f"http://127.0.0.1:{server.server_port}/private/torch/") == (
        "/private/torch/ application/vnd.pypi.simple.v1+json"
    )


def test_a_broken_index_is_told_from_a_missing_page(server: HTTPServer, fetch: Fetch) -> None:
    url = f"http://127.0.0.1:{server.server_port}/broken/"
    with pytest.raises(ToolFailed) as caught:
        fetch(url)
    assert caught.value.message == f"the index at {url} answered 500"


def test_an_index_that_cannot_be_reached_is_an_error_with_a_remedy(fetch: Fetch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/whl/torch/"
    with pytest.raises(ToolFailed) as caught:
        fetch(url)
    refused = os.strerror(errno.ECONNREFUSED)
    assert caught.value.message == f"the index at {url} cannot be reached: {refused}"
    assert caught.value.hint == "check the network and its proxy, or name a mirror with TORCHENV_TORCH_INDEX"
