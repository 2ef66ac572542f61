"""`upgrade` walks the whole road, goes on where it was stopped, and leaves a way back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.support.terminal import Terminal

HOSTS = Path(__file__).parents[1] / "data" / "hosts"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the wheels are for Linux")

PROFILE = """
schema = 1
name = "train"
[torch]
version = "2.15"
[backend]
only = ["cpu"]
[evaluation]
commands = [["python", "measure.py"]]
metrics = { loss = { better = "lower" } }
"""

MEASURE = """
import json, torch
print(json.dumps({"loss": LOSS if torch.__version__.startswith("2.15") else 1.0}))
"""


@pytest.fixture
def project(terminal: Terminal) -> Terminal:
    """A project with torch 2.14 active, and a measure of its own."""
    (terminal.cwd / "torchenv.toml").write_text(PROFILE)
    (terminal.cwd / "measure.py").write_text(MEASURE.replace("LOSS", "1.0"))
    made = terminal.type("create", "2.14", "--backend", "cpu", "--use")
    assert made.code == 0, made.err
    return terminal


def test_check_stops_after_the_verdict(project: Terminal) -> None:
    ended = project.type("upgrade", "--check", "--json")
    assert (ended.code, ended.json["verdict"], ended.json["from"]) == (0, "go", 1)
    subjects = [finding["subject"] for finding in ended.json["findings"]]
    assert subjects == ["machine", "environment", "code", "packages", "checkpoints"]
    assert project.type("list", "--json").json["current"] == 1
    assert not (project.cwd / ".torchenv" / "upgrade.json").exists()


def test_the_road_is_walked_step_by_step_and_goes_on_where_it_was_left(project: Terminal) -> None:
    ended = project.type("upgrade", "--until", "create")
    assert ended.code == 0, ended.err
    assert ended.out.endswith("stopped before `smoke`; go on with `torchenv upgrade`\n")
    assert project.type("list", "--json").json["current"] == 1
    # The small wheels compute nothing: what smoke says of them is not what this test is about.
    journal = project.cwd / ".torchenv" / "upgrade.json"
    document = json.loads(journal.read_text())
    assert (document["old"], document["new"], document["done"]) == (1, 2, ["check", "create"])
    journal.write_text(json.dumps({**document, "done": ["check", "create", "smoke"]}))
    ended = project.type("upgrade", "--json")
    assert ended.code == 0, ended.err
    assert (ended.json["done"][-3:], ended.json["next"]) == (["evaluate", "keep", "switch"], None)
    assert project.type("list", "--json").json["current"] == 2
    again = project.type("upgrade")
    assert (again.code, "end the trial with `torchenv commit`" in again.err) == (0, True)
    assert project.type("rollback", "--json").json["to"] == 1
    assert project.type("commit").code == 0
    assert not journal.exists()


def test_a_create_that_was_stopped_after_it_had_built_is_not_built_again(project: Terminal) -> None:
    assert project.type("upgrade", "--until", "create").code == 0
    journal = project.cwd / ".torchenv" / "upgrade.json"
    document = json.loads(journal.read_text())
    journal.write_text(json.dumps({**document, "new": None, "done": ["check"]}))
    assert project.type("upgrade", "--until", "create").code == 0
    assert json.loads(journal.read_text())["new"] == 2
    assert len(project.type("list", "--json").json["environments"]) == 2


def test_a_worse_evaluation_leaves_the_old_environment_active(project: Terminal) -> None:
    (project.cwd / "measure.py").write_text(MEASURE.replace("LOSS", "2.0"))
    assert project.type("upgrade", "--until", "create").code == 0
    journal = project.cwd / ".torchenv" / "upgrade.json"
    document = json.loads(journal.read_text())
    journal.write_text(json.dumps({**document, "done": ["check", "create", "smoke"]}))
    ended = project.type("upgrade")
    assert ended.code == 3
    assert "error: evaluate: environment 2 " in ended.err
    assert "measures worse than environment 1" in ended.err
    assert "(environment 1 stays active)" in ended.err
    assert project.type("list", "--json").json["current"] == 1
    taken_back = project.type("upgrade", "--abort")
    assert taken_back.code == 0, taken_back.err
    environments = project.type("list", "--json").json["environments"]
    assert [(one["number"], one["state"]) for one in environments] == [(1, "ready"), (2, "removed")]


def test_staying_writes_the_pin_and_is_no_failure(terminal: Terminal) -> None:
    host = HOSTS / "v100-driver-580.json"
    ended = terminal.type("upgrade", "2.15", "--check", "--host", host, HOSTS / "rtx-4090-driver-580.json")
    assert ended.code == 1
    assert "Stay on the release that you have: 1 (v100-driver-580)" in ended.out
    assert "Go: upgrade now: 1 (rtx-4090-driver-580)" in ended.out


def test_the_pin_leaves_the_rest_of_the_profile_as_it_is(tmp_path: Path) -> None:
    from torchenv.actions.upgrade import pin_profile

    path = tmp_path / "torchenv.toml"
    path.write_text(
        '# ours\nschema = 1\n[torch]\nversion = "2.15"   # the newest\npackages = ["torchvision"]\n'
    )
    pin_profile(path, "2.14", "cu126")
    assert path.read_text() == (
        '# ours\nschema = 1\n[torch]\nversion = "2.14"   # the newest\npackages = ["torchvision"]\n'
        '\n[backend]\nonly = ["cu126"]\n'
    )


def test_the_pin_keeps_line_ends_and_the_link_to_the_profile(tmp_path: Path) -> None:
    from torchenv.actions.upgrade import pin_profile

    path, link = tmp_path / "shared.toml", tmp_path / "torchenv.toml"
    path.write_bytes(b'schema = 1\r\n[torch]\r\nversion = "2.15"\r\n')
    link.symlink_to(path)
    pin_profile(link, "2.14", None)
    assert link.is_symlink()
    assert path.read_bytes() == b'schema = 1\r\n[torch]\r\nversion = "2.14"\r\n'


def test_a_damaged_journal_is_said_and_begun_again(project: Terminal) -> None:
    (project.cwd / ".torchenv" / "upgrade.json").write_text("{}")
    ended = project.type("upgrade", "--until", "create")
    assert ended.code == 5
    assert ended.err.endswith("hint: begin again with `torchenv upgrade --restart`\n")
    assert project.type("upgrade", "--restart", "--until", "create").code == 0


def test_the_advice_knows_the_active_environment_and_counts_in_words(project: Terminal) -> None:
    said = project.type("upgrade", "--check", "--json").json
    assert said["from"] == 1
    assert not [reason for reason in said["reasons"] if "no environment is active" in reason]
    found = {finding["subject"]: finding["found"] for finding in said["findings"]}
    assert found["code"] == "0 errors, 0 warnings, 0 notes"


def test_taking_an_upgrade_back_keeps_what_was_there_before_it(project: Terminal) -> None:
    assert project.type("create", "2.15", "--backend", "cpu").code == 0
    there = project.type("list", "--json").json["environments"]
    assert len(there) == 2
    ended = project.type("upgrade", "--until", "create")
    assert (ended.code, "which is built already" in ended.err) == (0, True), ended.err
    ended = project.type("upgrade", "--abort")
    assert (ended.code, "stays: it was there before the upgrade" in ended.err) == (0, True), ended.err
    assert project.type("list", "--json").json["environments"] == there


def test_taking_an_upgrade_back_removes_what_it_built_and_says_so(project: Terminal) -> None:
    assert project.type("upgrade", "--until", "create").code == 0
    ended = project.type("upgrade", "--abort")
    assert (ended.code, "removed environment 2 (" in ended.err) == (0, True), ended.err
    states = [environment["state"] for environment in project.type("list", "--json").json["environments"]]
    assert states == ["ready", "removed"]
