"""A workspace that nobody named is trusted by its owner, its origin and its place, or by the user."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from torchenv.workspace.trust import (
    FromElsewhere,
    FromRepository,
    OtherOwner,
    TrustRecord,
    Unproven,
    seal_identity,
    suspect,
)

IDENTITY = "0123456789abcdef" * 2


def make_workspace(project: Path) -> Path:
    root = project / ".torchenv"
    root.mkdir(parents=True)
    (root / "manifest.toml").write_text("schema = 1\n")
    (root / "identity").write_text(seal_identity(IDENTITY, root))
    return root


def run_git(directory: Path, *words: str | Path) -> None:
    subprocess.run(["git", "-C", directory, *words], check=True, capture_output=True, timeout=60)


def test_a_workspace_of_ones_own_where_it_was_made_is_trusted(tmp_path: Path) -> None:
    root = make_workspace(tmp_path)
    assert suspect(root, TrustRecord(None), lambda: str(root)) is None
    assert suspect(tmp_path / "nowhere", TrustRecord(None), lambda: None) is None


@pytest.mark.parametrize("identity", [None, "", IDENTITY, f"{IDENTITY} 7", f"{IDENTITY} "])
def test_one_that_was_unpacked_where_its_manifest_says_is_suspicious(
    tmp_path: Path, identity: str | None
) -> None:
    packed = make_workspace(tmp_path / "packed")
    if identity is None:
        (packed / "identity").unlink()
    elif identity != IDENTITY:
        (packed / "identity").write_text(identity)
    root = tmp_path / ".torchenv"
    shutil.copytree(packed, root)
    record = TrustRecord(tmp_path / "state")
    assert suspect(root, record, lambda: str(root)) == Unproven()
    # A workspace of one's own that a backup brought back.
    record.remember(IDENTITY, root)
    assert suspect(root, record, lambda: str(root)) == (
        None if identity and IDENTITY in identity else Unproven()
    )


def test_one_that_was_moved_within_its_file_system_stays_proven(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "a").rename(tmp_path / ".torchenv")
    assert suspect(root, TrustRecord(None), lambda: str(root)) is None


def test_a_workspace_of_another_user_is_suspicious(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_workspace(tmp_path)
    owner = root.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert isinstance(suspect(root, TrustRecord(None), lambda: str(root)), OtherOwner)


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("below", [".", "packages/train"])
def test_a_workspace_that_came_with_a_repository_is_suspicious(
    tmp_path: Path, version: str, below: str
) -> None:
    root = make_workspace(tmp_path / below)
    run_git(tmp_path, "init", "-q")
    record = TrustRecord(tmp_path / "state")
    assert suspect(root, record, lambda: str(root)) is None
    (tmp_path / "manifest.toml").touch()
    (root / "logs").touch()
    run_git(tmp_path, "add", "manifest.toml", root / "logs")
    run_git(tmp_path, "update-index", "--index-version", version)
    assert suspect(root, record, lambda: str(root)) is None
    run_git(tmp_path, "add", "-f", root / "manifest.toml")
    run_git(tmp_path, "update-index", "--index-version", version)
    assert (tmp_path / ".git" / "index").read_bytes()[7] == int(version)
    assert suspect(root, record, lambda: str(root)) == FromRepository(tmp_path)
    record.accept(root)
    assert suspect(root, record, lambda: str(root)) is None


@pytest.mark.parametrize("version", ["2", "4"])
def test_one_in_a_repository_whose_index_is_split_is_suspicious_too(tmp_path: Path, version: str) -> None:
    root = make_workspace(tmp_path)
    run_git(tmp_path, "init", "-q")
    run_git(tmp_path, "add", "-f", root / "manifest.toml")
    run_git(tmp_path, "update-index", "--index-version", version)
    run_git(tmp_path, "update-index", "--split-index")
    assert b"manifest.toml" not in (tmp_path / ".git" / "index").read_bytes()
    assert suspect(root, TrustRecord(None), lambda: str(root)) == FromRepository(tmp_path)


def test_a_workspace_from_another_place_is_suspicious_until_this_user_has_changed_it(tmp_path: Path) -> None:
    root = make_workspace(tmp_path)
    record = TrustRecord(tmp_path / "state")
    assert suspect(root, record, lambda: "/old/.torchenv") == FromElsewhere("/old/.torchenv")
    record.remember(IDENTITY, root)
    assert suspect(root, record, lambda: "/old/.torchenv") is None


@pytest.mark.parametrize("was", [None, ".torchenv", "/proc/self/cwd/.torchenv"])
def test_a_workspace_that_names_no_place_is_suspicious_until_this_user_has_changed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was: str | None
) -> None:
    root = make_workspace(tmp_path)
    monkeypatch.chdir(tmp_path)
    record = TrustRecord(tmp_path / "state")
    named = was if was is not None and was.startswith("/") else None
    assert suspect(root, record, lambda: was) == FromElsewhere(named)
    record.remember(IDENTITY, root)
    assert suspect(root, record, lambda: was) is None


def test_a_link_on_the_way_to_a_workspace_of_ones_own_is_no_matter(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "disk")
    (tmp_path / "link").symlink_to("disk")
    for was in (root, tmp_path / "link" / ".torchenv", tmp_path / "x" / ".." / "link" / ".torchenv"):
        found = tmp_path / "link" / ".torchenv"
        assert suspect(found, TrustRecord(None), lambda was=was: str(was)) is None  # type: ignore[misc]


def test_a_workspace_that_a_repository_holds_behind_a_link_is_suspicious(tmp_path: Path) -> None:
    make_workspace(tmp_path / "made").rename(tmp_path / "ws")
    root = tmp_path / ".torchenv"
    root.symlink_to("ws")
    run_git(tmp_path, "init", "-q")
    run_git(tmp_path, "add", "-f", ".torchenv", "ws/manifest.toml")
    assert suspect(root, TrustRecord(None), lambda: str(root)) == FromRepository(tmp_path)


def test_a_workspace_that_is_a_repository_itself_is_suspicious(tmp_path: Path) -> None:
    root = make_workspace(tmp_path)
    run_git(tmp_path, "init", "-q")
    (tmp_path / ".git" / "modules").mkdir()
    run_git(root, "init", "-q", "--separate-git-dir", tmp_path / ".git" / "modules" / "ws")
    run_git(root, "add", "manifest.toml")
    assert (root / ".git").is_file()
    assert suspect(root, TrustRecord(None), lambda: str(root)) == FromRepository(root)


@pytest.mark.parametrize("identity", ["../../x", "", "0" * 31, None])
def test_an_identity_that_is_none_is_never_known(tmp_path: Path, identity: str | None) -> None:
    record = TrustRecord(tmp_path / "state")
    record.remember(identity, tmp_path)
    assert not record.knows(identity)
    assert not (tmp_path / "state").exists()


def test_what_is_accepted_is_one_place(tmp_path: Path) -> None:
    record = TrustRecord(tmp_path / "state")
    record.accept(tmp_path / "a")
    assert record.is_accepted(tmp_path / "a")
    assert record.is_accepted(tmp_path / "b" / ".." / "a")
    assert not record.is_accepted(tmp_path / "b")
    (tmp_path / "file").touch()
    TrustRecord(tmp_path / "file").remember(IDENTITY, tmp_path)
    with pytest.raises(OSError, match="file"):
        TrustRecord(tmp_path / "file").accept(tmp_path)
