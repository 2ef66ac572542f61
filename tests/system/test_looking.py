"""Which file systems other machines write into as well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchenv.system.looking import is_shared, resolve_parents


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("ext4", False), ("overlay", False), ("nfs4", True), ("lustre", True), ("fuse.sshfs", True)],
)
def test_a_file_system_is_known_by_its_kind(tmp_path: Path, kind: str, expected: bool) -> None:  # noqa: FBT001
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 0:5 / /proc rw,nosuid shared:13 - proc proc rw\n"
        f"36 35 {number} / /run\\040s rw,noatime master:1 - {kind} fast:/runs rw,errors=continue\n"
    )
    assert is_shared(str(tmp_path), mounts) is expected
    mounts.write_text("22 1 0:5 / /proc rw,nosuid shared:13 - nfs proc rw\n")
    assert is_shared(str(tmp_path), mounts) is False


@pytest.mark.skipif(os.name == "nt", reason="links as on Unix")
def test_what_lies_before_two_dots_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk" / "runs").mkdir(parents=True)
    link = tmp_path / "runs"
    link.symlink_to(tmp_path / "disk" / "runs")
    assert resolve_parents(link / ".." / "a" / "step-1") == tmp_path / "disk" / "a" / "step-1"
    assert resolve_parents(link / "a") == link / "a"
