"""`upgrade` walks the whole road, goes on where it was stopped, and leaves a way back."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from jsonschema import validate
from tests.support.checkpoints import save
from tests.support.terminal import Terminal
from tests.support.workspace import MINOR, write_venv

HOSTS = Path(__file__).parents[1] / "data" / "hosts"
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
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
    assert ended.out.endswith("stopped before `smoke`; continue with `torchenv upgrade`\n")
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


def test_a_fleet_has_a_verdict_for_each_kind_of_host(terminal: Terminal) -> None:
    host = HOSTS / "v100-driver-580.json"
    ended = terminal.type("upgrade", "2.15", "--check", "--host", host, HOSTS / "rtx-4090-driver-580.json")
    assert ended.code == 1
    assert "Stay on the release that they have: 1 (v100-driver-580)" in ended.out
    assert "Go: upgrade now: 1 (rtx-4090-driver-580)" in ended.out


def test_where_the_release_is_active_already_nothing_is_written(project: Terminal) -> None:
    before = (project.cwd / "torchenv.toml").read_bytes()
    ended = project.type("upgrade", "2.14", "--yes")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("Stay on the release that you have\n")
    assert ended.err.endswith("nothing to do\n")
    assert (project.cwd / "torchenv.toml").read_bytes() == before
    assert not (project.cwd / ".torchenv" / "upgrade.json").exists()


def test_where_the_code_is_not_ready_staying_pins_the_release_in_use(project: Terminal) -> None:
    (project.cwd / "train.py").write_text("import torch\ntorch.nested._rebuild_njt({})\n")
    ended = project.type("upgrade", "--yes")
    assert ended.code == 0, ended.err
    assert "the audit found 1 error: fix this code first" in ended.out
    assert ended.err.endswith(f"pinned torch 2.14 in `{project.cwd / 'torchenv.toml'}`\n")
    assert project.type("list", "--json").json["current"] == 1


def test_no_step_gives_advice_that_a_later_one_follows(project: Terminal) -> None:
    (project.cwd / "torchenv.toml").write_text(f"{PROFILE}[checkpoints]\ndistributed = true\n")
    ended = project.type("upgrade", "--yes", "--until", "create")
    assert ended.code == 0, ended.err
    assert "see `torchenv help checkpoints keep`" in ended.out
    for advice in ("advice: ", "checkpoints keep"):
        assert advice not in ended.err.partition("step 2")[2]


def test_a_fleet_is_told_what_opens_the_newer_release_and_which_machines_it_never_will(
    terminal: Terminal,
) -> None:
    names = ("h100-driver-550", "m2-macos-14", "gtx-780")
    ended = terminal.type("upgrade", "2.15", "--check", "--host", *(HOSTS / f"{name}.json" for name in names))
    assert ended.code == 3
    assert "Stay on the release that they have: 2 (h100-driver-550, m2-macos-14)\n" in ended.out
    assert "  driver 580 or newer allows torch 2.15\n" in ended.out
    assert "  macOS 15.0 or newer allows torch 2.15\n" in ended.out
    assert "Nothing suits: 1 (gtx-780)\n" in ended.out


def test_a_failed_smoke_leaves_the_old_environment_active_with_the_way_on_and_the_way_back(
    project: Terminal,
) -> None:
    # The small wheels compute nothing.
    ended = project.type("upgrade")
    assert ended.code == 3
    assert "error: smoke: environment 2 failed its checks (environment 1 stays active)" in ended.err
    assert "(environment 1 stays active)" in ended.err
    assert "see why with `torchenv doctor 2`; then continue with `torchenv upgrade`, or undo it" in ended.err
    listed = project.type("list", "--json").json
    # What was built is kept to be looked at.
    assert (listed["current"], [one["state"] for one in listed["environments"]]) == (1, ["ready", "failed"])
    assert project.type("upgrade").code == 3
    assert project.type("upgrade", "--abort").code == 0
    assert project.type("list", "--json").json["current"] == 1


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
    assert ended.err.endswith("hint: start again with `torchenv upgrade --restart`\n")
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
    assert (ended.code, "which is already built" in ended.err) == (0, True), ended.err
    ended = project.type("upgrade", "--abort")
    assert (ended.code, "stays: it was there before the upgrade" in ended.err) == (0, True), ended.err
    assert project.type("list", "--json").json["environments"] == there


def test_taking_an_upgrade_back_removes_what_it_built_and_says_so(project: Terminal) -> None:
    assert project.type("upgrade", "--until", "create").code == 0
    ended = project.type("upgrade", "--abort")
    assert (ended.code, "removed environment 2 (" in ended.err) == (0, True), ended.err
    states = [environment["state"] for environment in project.type("list", "--json").json["environments"]]
    assert states == ["ready", "removed"]


def mark_done(project: Terminal, *steps: str) -> None:
    """Record steps as done: the small wheels compute nothing, and no smoke run of them passes."""
    journal = project.cwd / ".torchenv" / "upgrade.json"
    document = json.loads(journal.read_text())
    journal.write_text(json.dumps({**document, "done": [*document["done"], *steps]}))


@pytest.fixture
def trial(project: Terminal) -> Terminal:
    """A project whose upgrade has switched, and whose run went on beyond what the old environment reads."""
    save(project.cwd / "runs" / "a" / "step-100", "dcp-2.14.1")
    assert project.type("upgrade", "--until", "create", "--yes").code == 0
    mark_done(project, "smoke")
    ended = project.type("upgrade")
    assert ended.code == 0, ended.err
    assert "protected runs/a/step-100, which environment 1 " in ended.err
    save(project.cwd / "runs" / "a" / "step-200", "dcp-2.15.0")
    return project


def test_after_the_switch_status_says_what_the_old_environment_lost_and_where_its_lifeboat_is(
    trial: Terminal,
) -> None:
    said = trial.type("status").out
    assert "upgrade: on trial; end it with `torchenv commit`\n" in said
    assert "runs/a: step-200 cannot be read by environment 1 " in said
    assert "lifeboat: runs/a/step-100, 100 steps behind, saved " in said
    document = trial.type("status", "--json").json
    validate(document, json.loads((SCHEMAS / "torchenv.status-1.json").read_text()))
    assert document["trial"] is True
    (stranded,) = document["checkpoints"]
    assert (stranded["run"], stranded["newest"], stranded["newest_readable"], stranded["steps_behind"]) == (
        "runs/a",
        "step-200",
        "step-100",
        100,
    )
    assert (stranded["lifeboat"]["path"], stranded["lifeboat"]["steps_behind"]) == ("runs/a/step-100", 100)


def test_a_run_during_the_trial_says_it_too_and_is_silent_afterwards(trial: Terminal) -> None:
    during = trial.start("run", "--", "python", "-c", "print('trained')")
    assert (during.code, during.out) == (0, "trained\n")
    assert "note: runs/a: step-200 cannot be read by environment 1 " in during.err
    assert "note: lifeboat: runs/a/step-100, 100 steps behind, saved " in during.err
    assert trial.type("commit").code == 0
    afterwards = trial.start("run", "--", "python", "-c", "print('trained')")
    assert (afterwards.out, afterwards.err) == ("trained\n", "")
    assert trial.type("status", "--json").json["trial"] is False


def test_nothing_is_said_while_the_old_environment_reads_the_newest(trial: Terminal) -> None:
    shutil.rmtree(trial.cwd / "runs" / "a" / "step-200")
    assert trial.start("run", "--", "python", "-c", "0").err == ""
    assert trial.type("status", "--json").json["checkpoints"] == []


def test_a_run_without_a_lifeboat_is_told_how_to_get_one(trial: Terminal) -> None:
    assert trial.type("checkpoints", "keep", "--release", "runs/a/step-100").code == 0
    said = trial.type("status").out
    assert "no lifeboat: protect one with `torchenv checkpoints keep runs/a/step-100`\n" in said


def test_ending_the_trial_with_remove_releases_the_lifeboats_and_the_old_environment(trial: Terminal) -> None:
    ended = trial.type("commit", "--remove")
    assert ended.code == 0, ended.err
    listed = trial.type("list", "--json").json
    assert [(one["number"], one["state"]) for one in listed["environments"]] == [(1, "removed"), (2, "ready")]
    assert trial.type("checkpoints", "verify", "--json").json["kept"] == []
    assert (trial.cwd / "runs" / "a" / "step-100" / ".metadata").is_file()
    assert trial.type("commit").code == 2


def test_a_lifeboat_that_was_protected_before_a_stop_is_released_with_the_rest(trial: Terminal) -> None:
    # Killed between the protection and the next note in the journal.
    journal = trial.cwd / ".torchenv" / "upgrade.json"
    document = json.loads(journal.read_text())
    assert document["kept"] == ["runs/a/step-100"]
    journal.write_text(json.dumps({**document, "done": document["done"][:-2]}))
    assert trial.type("use", "1", "--force").code == 0
    assert trial.type("upgrade").code == 0
    assert json.loads(journal.read_text())["kept"] == ["runs/a/step-100"]


def test_the_projects_own_environment_is_weighed_before_it_is_recorded_and_then_gone_back_to(
    terminal: Terminal,
) -> None:
    (terminal.cwd / "torchenv.toml").write_text(PROFILE)
    write_venv(terminal.cwd / ".venv", {"torch": "2.14.1+cpu", "torch-scatter": "2.1.0"})
    save(terminal.cwd / "runs" / "a" / "step-100", "dcp-2.14.1")
    checked = terminal.type("upgrade", "--check", "--json")
    assert checked.json["from"] is None
    found = [(finding["subject"], finding["found"]) for finding in checked.json["findings"]]
    assert ("environment", f"torch 2.14.1+cpu, Python {MINOR}.0") in found
    assert ("checkpoints", "1 run, 1 with a save that the active environment reads") in found
    assert ("checkpoints", "no lifeboat yet") in found
    assert not (terminal.workspace / "manifest.toml").exists()

    ended = terminal.type("upgrade", "--until", "check", "--yes", "--json")
    assert (ended.code, ended.json["from"]) == (0, 1), ended.err
    listed = terminal.type("list", "--json").json
    (adopted,) = listed["environments"]
    assert (listed["current"], adopted["kind"], adopted["path"]) == (
        1,
        "adopted",
        str(terminal.cwd / ".venv"),
    )


def test_the_findings_name_each_package_that_cannot_follow_and_how_old_the_lifeboat_is(
    project: Terminal,
) -> None:
    site = next((project.workspace / "envs").glob("*/lib/python*/site-packages"))
    info = site / "scatter-2.1.dist-info"
    info.mkdir()
    lines = "Metadata-Version: 2.4\nName: scatter\nVersion: 2.1\nRequires-Dist: torch==2.14.1\n"
    (info / "METADATA").write_text(lines)
    source = json.dumps({"url": f"{project.cwd.as_uri()}/scatter", "dir_info": {"editable": True}})
    (info / "direct_url.json").write_text(source)
    boat = save(project.cwd / "runs" / "a" / "step-100", "dcp-2.14.1")
    assert project.type("checkpoints", "keep", boat).code == 0
    findings = project.type("upgrade", "--check", "--json").json["findings"]
    found = {(finding["subject"], finding["found"]): finding["cure"] for finding in findings}
    cure = found["packages", "scatter 2.1 cannot follow: it requires torch==2.14.1"]
    command = f"uv pip install --no-deps --no-build-isolation {project.cwd}/scatter"
    assert cure == f"build it again in the new environment with `{command}`"
    assert any(text.startswith("lifeboat: runs/a/step-100, saved ") for _, text in found)


def test_a_profile_that_writes_for_the_old_release_is_named_and_at_work_after_the_switch(
    project: Terminal,
) -> None:
    profile = project.cwd / "torchenv.toml"
    profile.write_text(f'{PROFILE}[checkpoints]\nwrite-for = "2.14"\n')
    assert project.type("upgrade", "--until", "create").code == 0
    mark_done(project, "smoke")
    ended = project.type("upgrade")
    said = "`torchenv run` writes distributed checkpoints for torch 2.14, as the profile says"
    assert (ended.code, said in ended.err) == (0, True), ended.err


# A release for which no machine has an interpreter.
OUT_OF_REACH = """
schema = 1
[[release]]
version = "2.15.0"
pythons = ["3.99"]
requires-python = ">=3.99"
preferred-pythons = { default = ["3.99"] }
"""


def test_where_only_an_older_release_suits_staying_pins_it_and_says_what_opens_the_newer(
    project: Terminal,
) -> None:
    (project.cwd / "later.toml").write_text(OUT_OF_REACH)
    ended = project.type("upgrade", "2.15", "--catalogue", "later.toml", "--offline")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("Stay on the release that you have\n")
    assert "torch 2.15.0 (cpu): requires Python >=3.99, and this host has only Python " in ended.out
    assert ended.err.endswith(f"pinned torch 2.14 in `{project.cwd / 'torchenv.toml'}`\n")
    assert 'version = "2.14"' in (project.cwd / "torchenv.toml").read_text()
    assert project.type("list", "--json").json["current"] == 1
    assert project.type("upgrade", "2.15", "--check", "--catalogue", "later.toml", "--offline").code == 1


def test_questions_are_asked_at_a_terminal_alone(project: Terminal) -> None:
    (project.cwd / "torchenv.toml").write_text(f"{PROFILE}[checkpoints]\ndistributed = true\n")
    ended = project.type("upgrade")
    assert ended.code == 0, ended.err
    assert "to continue without being asked: `torchenv upgrade --yes`" in ended.err
    assert not (project.workspace / "upgrade.json").exists()


def test_a_restart_begins_with_the_first_step(project: Terminal) -> None:
    assert project.type("upgrade", "--until", "create").code == 0
    ended = project.type("upgrade", "--restart", "--until", "check", "--json")
    assert (ended.code, ended.json["done"]) == (0, ["check"]), ended.err
