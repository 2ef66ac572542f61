"""Whatever a file of another holds, it is read as a value or refused with a message.

What tools print is in tests/host/probe/test_any_text.py, the bytes of checkpoints in tests/checkpoints.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchenv.actions.ask_index import IndexMemory
from torchenv.audit import audit_content, read_breakages
from torchenv.audit.rules import RULES
from torchenv.audit.sources import FileKind
from torchenv.catalogue import document, resources
from torchenv.errors import TorchenvError
from torchenv.host.model import Host
from torchenv.index.pages import ProjectPage
from torchenv.lockfile.lock import Lock
from torchenv.lockfile.lockset import LockSet
from torchenv.packages import of_file
from torchenv.packages.requirements_file import read_requirements_file
from torchenv.profile.model import Profile
from torchenv.system.documents import Table
from torchenv.workspace.journal import Journal
from torchenv.workspace.manifest import Manifest

CORPUS = Path(__file__).parent / "data" / "documents"
AT = datetime(2026, 11, 30, 8, tzinfo=UTC)


@cache
def breakages() -> object:
    return read_breakages(resources.section("audit"), resources.catalogue())


def audit_as(kind: FileKind) -> Callable[[str], object]:
    def audit(text: str) -> object:
        content = text.encode("utf-8", "surrogatepass")
        return audit_content("a", kind, content, breakages(), RULES)  # type: ignore[arg-type]

    return audit


# Each document with what reads it.
PARSERS: dict[str, Callable[[str], object]] = {
    "profile.toml": lambda text: Profile.from_toml(text, "torchenv.toml"),
    "catalogue.toml": lambda text: document.parse(Table.from_toml(text, "catalogue.toml")),
    "host.json": lambda text: Host.from_json(text, "host.json"),
    "manifest.toml": lambda text: Manifest.from_toml(text, "manifest.toml"),
    "lock.toml": lambda text: Lock.parse(text, "pylock.toml"),
    "tie.toml": lambda text: LockSet.from_toml(text, "torchenv.lock.toml"),
    "requirements.txt": lambda text: read_requirements_file(Path("requirements.txt"), lambda _: text),
    "pyproject.toml": lambda text: of_file(
        "pyproject.toml", Path("/project"), lambda _: text, resources.catalogue()
    ),
    "page.html": lambda text: ProjectPage.parse(text, "http://127.0.0.1/whl/torch/", "torch"),
    "page.json": lambda text: ProjectPage.parse(text, "http://127.0.0.1/simple/torch/", "torch").versions,
    "answers.json": lambda text: IndexMemory.parse(text, AT),
    "upgrade.json": lambda text: Journal.parse(text, "upgrade.json"),
    "python.txt": audit_as(FileKind.PYTHON),
    "notebook.json": audit_as(FileKind.NOTEBOOK),
    "ci.yml": audit_as(FileKind.CI),
    "Dockerfile": audit_as(FileKind.DOCKERFILE),
    "setup.cfg": audit_as(FileKind.SETUP_CFG),
}

# What has broken parsers before: in the place of anything, and at any length.
FRAGMENTS = (
    *(
        "\0",
        "\x1b[31m",
        "\r",
        "\u2028",
        "\ud800",
        "\U0001d7d9",
        "é",
        "\ufeff",
        '"',
        "'''",
        "[[",
        "]]",
        "{",
        "}",
        "=",
        ",",
    ),
    *(
        "-1",
        "1e999",
        "nan",
        "9" * 5000,
        "0x",
        "1979-05-27",
        "true",
        "null",
        "../../..",
        "$(id)",
        "${A}",
        "%(a)s",
    ),
    *(
        "<a href=",
        "&#x110000;",
        "&#99999999999;",
        "==2.*.1",
        ">=",
        "; python_version < '",
        "@ file:///etc",
        "#egg=",
    ),
    *(
        "a" * 3000,
        "." * 300,
        "[" * 300,
        "{" * 300,
        "(" * 300,
        "\\",
        "\\u",
        "!!python/object:os.system",
        "*a",
        "&a",
    ),
)

EDITS = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.integers(0, 12), st.sampled_from(FRAGMENTS) | st.text(max_size=6)),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("name", PARSERS)
def test_the_corpus_is_read(name: str) -> None:
    assert PARSERS[name]((CORPUS / name).read_text("utf-8")) is not None


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(edits=EDITS, end=st.none() | st.integers(0, 1 << 16))
def test_whatever_becomes_of_it_ends_in_a_value_or_a_message(
    name: str, edits: list[tuple[int, int, str]], end: int | None
) -> None:
    text = (CORPUS / name).read_text("utf-8")
    for at, length, fragment in edits:
        place = at % (len(text) + 1)
        text = text[:place] + fragment + text[place + length :]
    if end is not None:
        text = text[: end % (len(text) + 1)]
    # Whatever else is raised is a defect.
    with suppress(TorchenvError):
        PARSERS[name](text)


# Characters of one fragment in the middle of a document.
LENGTH = 50_000


@pytest.mark.skipif(sys.platform != "linux", reason="reads its own size from /proc")
@pytest.mark.parametrize("name", PARSERS)
def test_what_is_repeated_without_end_takes_bounded_memory_and_time(name: str) -> None:
    from tests.support.limits import ends_within_limits

    text = (CORPUS / name).read_text("utf-8")
    # What is loaded by the first reading counts for no document.
    PARSERS[name](text)

    def read() -> None:
        for fragment in (*FRAGMENTS, "\n", text):
            grown = fragment * (LENGTH // len(fragment) + 1)
            with suppress(TorchenvError):
                PARSERS[name](text[: len(text) // 2] + grown + text[len(text) // 2 :])

    assert ends_within_limits(read)
