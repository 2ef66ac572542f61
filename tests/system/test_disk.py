"""The disk takes what several put there at once."""

from __future__ import annotations

import os
import stat
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torchenv.system import disk
from torchenv.system.disk import Disk, replace_file, rewrite_text
from torchenv.system.mutex import try_to_lock

if TYPE_CHECKING:
    from collections.abc import Callable


def put_again_and_again(path: Path) -> None:
    for _ in range(300):
        Disk().put(path, "the same from all\n")


def test_several_may_put_the_same_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pylock.ci.toml"
    with get_context("spawn").Pool(4) as pool:
        pool.map(put_again_and_again, [path] * 4)
    assert path.read_text("utf-8") == "the same from all\n"
    assert list(tmp_path.iterdir()) == [path]


class Interrupting(Disk):
    """Is interrupted when all is written and nothing has its name yet."""

    def rename(self, old: Path, new: Path) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_before_a_file_has_its_name_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "pylock.ci.toml"
    path.write_text("before\n", "utf-8")
    with pytest.raises(KeyboardInterrupt):
        Interrupting().put(path, "after\n")
    assert path.read_text("utf-8") == "before\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="Windows limits no file's size")
def test_a_write_that_fails_leaves_the_users_file_as_it_was(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "host.json"
    path.write_bytes(b"before\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            replace_file(path, b"after, and longer than there is room\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"before\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="links and modes as on Unix")
def test_a_file_is_replaced_where_a_link_leads_and_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    file, link = tmp_path / "shared" / "report.html", tmp_path / "report.html"
    file.write_bytes(b"before\n")
    file.chmod(0o640)
    link.symlink_to(file)
    replace_file(link, b"after\n")
    assert link.is_symlink()
    assert file.read_bytes() == b"after\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    replace_file(Path(os.devnull), b"nowhere\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\n", b"a\r\nc\r\n"),
        (b"a\nb\n", b"a\nc\n"),
        (b"\xef\xbb\xbfa\r\n", b"\xef\xbb\xbfa\r\nc\r\n"),
        (None, b"a\nc\n"),
    ],
)
def test_a_rewritten_text_keeps_its_line_ends_and_its_mark(
    before: bytes | None, after: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "torchenv.toml"
    if before is not None:
        path.write_bytes(before)
    rewrite_text(path, "a\nc\n")
    assert path.read_bytes() == after


@pytest.mark.skipif(os.name == "nt", reason="a file in use is not deleted there")
def put_bytes(path: Path) -> None:
    replace_file(path, b"schema = 1\n")


def put_text(path: Path) -> None:
    Disk().put(path, "schema = 1\n")


@pytest.mark.parametrize("put", [put_bytes, put_text])
def test_what_a_killed_run_left_beside_a_file_goes_and_what_is_being_written_stays(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    left, held = tmp_path / f".torchenv-{'0' * 16}.new", tmp_path / f".torchenv-{'1' * 16}.new"
    mine = tmp_path / ".torchenv-notes.new"
    for path in (left, held, mine):
        path.touch()
    with held.open("rb") as file:
        assert try_to_lock(file.fileno())
        put(tmp_path / "torchenv.toml")
    assert sorted(path.name for path in tmp_path.iterdir()) == [held.name, mine.name, "torchenv.toml"]


@pytest.mark.parametrize("put", [put_bytes, put_text])
def test_a_draft_that_another_run_clears_before_it_is_held_is_written_again(
    tmp_path: Path, put: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[str] = []

    def clear_first(handle: int) -> bool | None:
        if not cleared:
            (draft,) = tmp_path.iterdir()
            draft.unlink()
            cleared.append(draft.name)
        return try_to_lock(handle)

    monkeypatch.setattr(disk, "try_to_lock", clear_first)
    put(tmp_path / "torchenv.toml")
    assert cleared
    assert (tmp_path / "torchenv.toml").read_text("utf-8") == "schema = 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["torchenv.toml"]


def test_what_another_deletes_at_the_same_moment_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "draft"
    path.touch()
    look = os.path.lexists

    def look_and_lose(at: Path) -> bool:
        found = look(at)
        path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(os.path, "lexists", look_and_lose)
    assert Disk().delete(path)
    assert Disk().delete(path)
