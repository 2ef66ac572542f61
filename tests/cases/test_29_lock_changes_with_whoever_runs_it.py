"""A team's lock files of six targets, locked on Linux and for macOS and Windows, by whoever it is."""

from __future__ import annotations

import pytest
from tests.support.project import Project

from torchenv.lockfile.lock import Lock


def test_the_bytes_are_the_same_whoever_locks_and_a_check_names_the_difference(
    team: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert team.run("lock").code == 0
    first = team.locks()
    # One file for each of the six targets, and one that ties them.
    assert len(first) == 7
    assert team.run("lock").code == 0
    assert team.locks() == first

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the machine that locks was looked at")

    monkeypatch.setattr("torchenv.host.probe.probe", fail)
    other = Project(team.directory.parent / "of another", team.index, team.environ)
    assert other.run("lock", LC_ALL="C", TZ="Asia/Tokyo", HOME=str(team.directory.parent)).code == 0
    assert other.locks() == first

    text = team.read("pylock.v100.toml")
    assert Lock.parse(text, "pylock.v100.toml").versions["torch"] == "2.14.1+cu126"
    for part in (f'index = "{team.index.backend("cu126")}"', "sha256", "size = ", "torch-2.14.1%2Bcu126"):
        assert part in text
    assert "cu126 is held at 2.14.x because torch 2.15.0 is not built for cu126" in text

    assert team.run("lock", "--check").code == 0
    team.change("pylock.ci.toml", "2.3.0", "2.2.0")
    checked = team.run("lock", "--check")
    assert checked.code == 1
    assert "ci" in checked.out + checked.said


def test_a_target_that_does_not_fit_the_machine_is_refused(team: Project) -> None:
    assert team.run("lock").code == 0
    refused = team.run("sync", "windows")
    assert refused.code == 3
    assert "target `windows` is for windows-x86_64, and this host is linux-x86_64" in refused.said
