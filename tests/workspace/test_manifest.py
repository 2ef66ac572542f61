"""The record: every change is a function from manifest to manifest."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from torchenv.environment.base_python import BasePython
from torchenv.errors import InputError, NothingSuits, WorkspaceError
from torchenv.workspace.keys import as_json
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import (
    Activation,
    ChoiceRecord,
    Environment,
    EnvironmentKind,
    Kept,
    Proof,
    Run,
    State,
)

ENVS = Path("/home/u/project/.torchenv/envs")
PYTHON = BasePython("3.12.7", "/usr/bin/python3.12", "sha256:00")
AT = datetime(2026, 11, 30, 8, tzinfo=UTC)


def built(manifest: Manifest, name: str = "2.15.0-cu132-py3.12", torch: str = "2.15.0+cu132") -> Manifest:
    manifest, new = manifest.begin(
        name, within=ENVS, python=PYTHON, at=AT, torch=torch, backend="cu132", identity="ab"
    )
    return manifest.commit(new, lock="sha256:11", fingerprint="sha256:22")[0]


def adopted(manifest: Manifest, path: str = "/home/u/project/.venv", **changes: str) -> Manifest:
    facts = {"torch": "2.14.1+cu130", "identity": "venv-1", "backend": "cu130"} | changes
    return manifest.adopt("2.14.1-cu130-py3.12", path=Path(path), python=PYTHON, at=AT, **facts)[0]


def live(_: Environment) -> bool:
    return True


def test_a_begun_environment_is_building_in_a_directory_that_never_was() -> None:
    manifest, new = Manifest().begin("2.15.0-cu132-py3.12", within=ENVS, python=PYTHON, at=AT)
    assert (new.number, new.state, new.kind) == (1, State.BUILDING, EnvironmentKind.BUILT)
    assert new.path == str(ENVS / "1-2.15.0-cu132-py3.12")
    assert manifest.list_unfinished() == (new,)
    assert manifest.next_number == 2


def test_a_number_is_never_used_twice_even_after_its_environment_was_cleared() -> None:
    manifest, first = Manifest().begin("a", within=ENVS, python=PYTHON, at=AT)
    manifest, second = manifest.drop_unfinished(first.number).begin("a", within=ENVS, python=PYTHON, at=AT)
    assert (first.number, second.number) == (1, 2)
    assert manifest.list_unfinished() == (second,)


def test_a_name_that_is_taken_gets_the_number_at_its_end_until_its_owner_is_removed() -> None:
    twice = built(built(Manifest()))
    assert [environment.name for environment in twice.environments] == [
        "2.15.0-cu132-py3.12",
        "2.15.0-cu132-py3.12-2",
    ]
    again = built(built(Manifest()).mark_removed(1))
    assert again.find("2.15.0-cu132-py3.12").number == 2


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("/p/a:b", "an environment cannot be activated in `/p/a:b`: PATH is divided at each `:`"),
        ("/p/a\nb", "no program can start in `/p/a\\nb`: a script ends its first line there"),
    ],
)
def test_a_place_that_can_hold_no_environment_is_refused_with_the_reason(place: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Manifest().begin("2.15", within=Path(place), python=PYTHON, at=AT)
    assert caught.value.message == message
    assert caught.value.hint == "choose another place with `--root DIR`, or rename the directory"


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", "..", "a\\b", "CON.", "x" * 65, "-e"])
def test_a_name_that_would_leave_the_workspace_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        Manifest().begin(name, within=ENVS, python=PYTHON, at=AT)
    assert str(caught.value) == f"`{name}` cannot name an environment"
    assert caught.value.hint == "use letters, digits and `.`, `_`, `+`, `-` between them, 64 at most"


def test_a_committed_environment_is_ready_with_its_lock_and_is_not_yet_in_use() -> None:
    manifest = built(adopted(Manifest()))
    ready = manifest.number(2)
    assert (ready.state, ready.lock, ready.fingerprint) == (State.READY, "sha256:11", "sha256:22")
    assert manifest.current == 1


def test_the_first_adopted_environment_is_the_one_in_use_without_a_switch() -> None:
    manifest = adopted(Manifest())
    assert manifest.active == manifest.number(1)
    assert manifest.switches == ()
    assert adopted(manifest, "/opt/other").current == 1


def test_adopting_the_same_environment_again_keeps_its_number_and_renews_its_fingerprint() -> None:
    manifest = adopted(adopted(Manifest(), fingerprint="sha256:1"), fingerprint="sha256:2")
    assert [(environment.number, environment.fingerprint) for environment in manifest.environments] == [
        (1, "sha256:2")
    ]


@pytest.mark.parametrize("change", [{"torch": "2.15.0+cu132"}, {"identity": "venv-2"}])
def test_an_adopted_environment_that_was_changed_in_place_makes_way_for_its_successor(
    change: dict[str, str],
) -> None:
    manifest = adopted(adopted(Manifest()), **change)
    assert [environment.state for environment in manifest.environments] == [State.REMOVED, State.READY]
    assert manifest.current == 2
    (switch,) = manifest.switches
    assert (switch.from_, switch.to, switch.why) == (1, 2, "adopt")
    assert switch.said == ("/home/u/project/.venv was changed in place",)


def test_an_environment_that_torchenv_built_is_not_adopted() -> None:
    manifest = built(Manifest())
    same, found = manifest.adopt("x", path=Path(manifest.number(1).path), python=PYTHON, at=AT)
    assert same == manifest
    assert found == manifest.number(1)


def test_a_check_proves_an_environment_or_shows_that_it_fails() -> None:
    passed = Proof(at=AT, passed=True, what="smoke", devices=("RTX 4090",))
    failed = Proof(at=AT, passed=False, what="smoke", said=("python smoke.py exited with 1",))
    proven = built(Manifest()).record_check(1, passed).number(1)
    assert (proven.state, proven.proofs, proven.live) == (State.PROVEN, (passed,), True)
    broken = built(Manifest()).record_check(1, passed).record_check(1, failed).number(1)
    assert (broken.state, broken.live, broken.on_disk) == (State.FAILED, False, True)
    assert broken.proofs == (passed, failed)


def test_using_an_environment_moves_the_pointer_and_tells_the_history() -> None:
    manifest = built(adopted(Manifest())).use(2, why="use", at=AT, said=["smoke passed"])
    assert manifest.current == 2
    (switch,) = manifest.switches
    assert (switch.at, switch.from_, switch.to) == (AT, 1, 2)
    assert (switch.why, switch.said) == ("use", ("smoke passed",))
    assert manifest.use(2, why="use", at=AT) == manifest


def test_a_rollback_goes_to_the_one_before_and_a_second_one_returns() -> None:
    manifest = built(adopted(Manifest())).use(2, why="use", at=AT)
    for expected in (1, 2, 1):
        target = manifest.rollback_target(live)
        assert target is not None
        assert target.number == expected
        manifest = manifest.use(target.number, why="rollback", at=AT)


def test_a_rollback_passes_over_what_is_no_longer_there() -> None:
    manifest = built(built(built(adopted(Manifest()))))
    for number in (2, 3, 4):
        manifest = manifest.use(number, why="use", at=AT)
    target = manifest.mark_removed(3).rollback_target(lambda environment: environment.number != 2)
    assert target == manifest.number(1)


def test_without_anything_before_there_is_nothing_to_go_back_to() -> None:
    assert adopted(Manifest()).rollback_target(live) is None
    used = built(adopted(Manifest())).use(2, why="use", at=AT)
    assert used.rollback_target(lambda _: False) is None


@pytest.mark.parametrize("text", ["2", "2.15.0-cu132-py3.12", "2.15", "2.15.0", "2.15.0+cu132"])
def test_an_environment_is_found_by_number_by_name_and_by_its_torch(text: str) -> None:
    assert built(adopted(Manifest())).find(text).number == 2


def test_a_version_is_compared_as_a_version_and_not_as_text() -> None:
    manifest = built(built(Manifest(), "old", "2.1.0+cu118"), "new", "2.15.0+cu132")
    assert manifest.find("2.1").name == "old"


def test_what_may_be_several_environments_is_refused_with_their_numbers() -> None:
    with pytest.raises(InputError) as caught:
        built(built(Manifest(), "a"), "b").find("2.15")
    assert str(caught.value) == "`2.15` matches environments 1 (a), 2 (b)"
    assert caught.value.hint == "give its number"


def test_a_version_that_only_one_environment_still_has_is_that_one() -> None:
    assert built(built(Manifest(), "a"), "b").mark_removed(1).find("2.15").name == "b"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2.15.0-cu132-py312", "did you mean `2.15.0-cu132-py3.12`?"),
        ("7", "list the environments with `torchenv list`"),
        ("2.16", "list the environments with `torchenv list`"),
        ("not a version", "list the environments with `torchenv list`"),
    ],
)
def test_what_is_no_environment_is_refused_with_what_may_be_meant(text: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        built(Manifest()).find(text)
    assert str(caught.value) == f"environment `{text}` not found"
    assert caught.value.hint == hint


def test_a_removed_environment_is_named_with_the_way_back() -> None:
    manifest = built(Manifest()).mark_removed(1)
    with pytest.raises(NothingSuits) as caught:
        manifest.find("1")
    assert str(caught.value) == "environment 1 (2.15.0-cu132-py3.12) was removed"
    assert caught.value.hint == "rebuild it with `torchenv restore 1`"
    assert manifest.find("1", removed=True).number == 1


def test_an_unfinished_environment_cannot_be_used() -> None:
    manifest, _ = Manifest().begin("a", within=ENVS, python=PYTHON, at=AT)
    with pytest.raises(WorkspaceError, match="environment 1 \\(a\\) is not finished"):
        manifest.find("a")


def test_a_lifeboat_of_the_same_path_is_replaced_and_runs_are_those_of_the_last_scan() -> None:
    manifest = Manifest().keep(Kept(path="runs/a/step-1")).keep(Kept(path="runs/b/step-1"))
    manifest = manifest.keep(Kept(path="runs/a/step-1", digest="sha256:1", readable_by=(1, 2)))
    assert [item.path for item in manifest.kept] == ["runs/b/step-1", "runs/a/step-1"]
    manifest = manifest.record_runs([Run(path="runs/a")]).record_runs([Run(path="runs/b")])
    assert [run.path for run in manifest.runs] == ["runs/b"]


def full_manifest() -> Manifest:
    choice = ChoiceRecord(profile="default", outcome="as-requested", because=("cu132 comes first",))
    manifest, new = adopted(Manifest()).begin(
        "2.15.0-cu132-py3.12",
        within=ENVS,
        python=BasePython("3.12.7", '/opt/my "python"/bin/python'),
        at=AT,
        torch="2.15.0+cu132",
        index="https://mirror.example/whl/cu132",
        reads="dcp",
        choice=choice,
    )
    manifest, _ = manifest.commit(new, lock="sha256:11", proof=Proof(at=AT, passed=True, what="inside"))
    manifest = manifest.use(2, why="use", at=AT + timedelta(hours=1), said=["a\nb"])
    manifest = manifest.keep(Kept(path="runs/ä/step-1", readable_by=(1, 2)))
    return manifest.record_runs([Run(path="runs/a", newest="s2", newest_readable={1: "s1", 2: "s2"})])


def test_what_is_written_reads_back_the_same() -> None:
    manifest = full_manifest()
    assert Manifest.from_toml(manifest.to_toml(), "manifest.toml") == manifest
    assert Manifest.from_toml(Manifest().to_toml(), "manifest.toml") == Manifest()


def test_the_file_says_what_it_is_and_reads_like_the_contract() -> None:
    manifest = built(adopted(Manifest())).use(2, why="use", at=AT)
    manifest = manifest.record_runs([Run(path="runs/a", newest="s2", newest_readable={1: "s1"})])
    assert (
        manifest.to_toml()
        == """\
# torchenv's record of this workspace: which environments exist and which one is active.
# torchenv replaces this file whole on every change; change it with `torchenv use`,
# `torchenv rollback` and `torchenv remove` rather than by hand.

schema = 1
end-mark = true
next-number = 3
current = 2

[[environment]]
number = 1
name = "2.14.1-cu130-py3.12"
kind = "adopted"
state = "ready"
path = "/home/u/project/.venv"
python = { version = "3.12.7", path = "/usr/bin/python3.12", digest = "sha256:00" }
torch = "2.14.1+cu130"
backend = "cu130"
created = 2026-11-30T08:00:00Z
identity = "venv-1"

[[environment]]
number = 2
name = "2.15.0-cu132-py3.12"
kind = "built"
state = "ready"
path = "/home/u/project/.torchenv/envs/2-2.15.0-cu132-py3.12"
python = { version = "3.12.7", path = "/usr/bin/python3.12", digest = "sha256:00" }
torch = "2.15.0+cu132"
backend = "cu132"
lock = "sha256:11"
created = 2026-11-30T08:00:00Z
fingerprint = "sha256:22"
layout = "venv"
identity = "ab"

[[switch]]
at = 2026-11-30T08:00:00Z
from = 1
to = 2
why = "use"

[[run]]
path = "runs/a"
newest = "s2"
newest-readable = { 1 = "s1" }

# end
"""
    )


def test_a_file_that_was_cut_between_two_tables_is_damaged() -> None:
    text = full_manifest().to_toml()
    cuts = [at for at in range(len(text)) if text.startswith("\n[[", at)]
    for at in (*cuts, text.index("# end")):
        with pytest.raises(InputError) as caught:
            Manifest.from_toml(text[:at], "manifest.toml")
        assert caught.value.message == "manifest.toml: its end is missing: the last line is not `# end`"


def test_a_file_that_was_cut_at_any_byte_is_damaged() -> None:
    text = full_manifest().to_toml()
    for end in range(len(text.rstrip())):
        with pytest.raises(InputError):
            Manifest.from_toml(text[:end], "manifest.toml")


def test_a_file_from_before_the_end_mark_and_one_edited_by_hand_are_read() -> None:
    manifest = full_manifest()
    text = manifest.to_toml()
    older = text.replace("end-mark = true\n", "").removesuffix("\n# end\n")
    assert "end" not in older.split()
    assert Manifest.from_toml(older, "manifest.toml") == manifest
    edited = text.replace("[[switch]]", "# mine\n\n[[switch]]") + "\n \n"
    assert Manifest.from_toml(edited, "manifest.toml") == manifest


def test_keys_of_a_later_torchenv_are_kept_when_the_file_is_written_again() -> None:
    text = full_manifest().to_toml().replace('why = "use"', 'why = "use"\nwho = { name = "u", ids = [1] }')
    text = text.replace("schema = 1", 'schema = 1\ncolour = "red"')
    text = text.replace('newest = "s2"', 'newest = "s2"\n"odd key" = 1.5')
    manifest = Manifest.from_toml(text, "manifest.toml")
    assert dict(manifest.more) == {"colour": "red"}
    assert dict(manifest.switches[0].more) == {"who": {"name": "u", "ids": [1]}}
    assert dict(manifest.runs[0].more) == {"odd key": 1.5}
    again = Manifest.from_toml(manifest.to_toml(), "manifest.toml")
    assert again == manifest


def test_a_part_of_the_record_as_json_has_the_keys_of_the_file_and_times_as_text() -> None:
    manifest = full_manifest()
    assert as_json(manifest.switches[0]) == {
        "at": "2026-11-30T09:00:00Z",
        "from": 1,
        "to": 2,
        "why": "use",
        "said": ["a\nb"],
    }
    assert as_json(manifest.runs[0])["newest-readable"] == {"1": "s1", "2": "s2"}
    assert as_json(manifest.number(2))["proof"][0]["at"] == "2026-11-30T08:00:00Z"


def test_an_unknown_schema_is_refused() -> None:
    with pytest.raises(WorkspaceError) as caught:
        Manifest.from_toml("schema = 2\n", "manifest.toml")
    assert str(caught.value) == "manifest.toml: schema 2 is not known to this torchenv"
    assert caught.value.hint == "use the torchenv that wrote it, or a newer one; nothing was changed"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "next-number = 3",
            "next-number = 2",
            "next-number: 2 has been used, and a number is never used twice",
        ),
        ("current = 2", "current = 9", "current: names environment 9, which is not recorded"),
        ("number = 2\nname", "number = 1\nname", "environment[1].number: 1 appears twice"),
        (
            'state = "ready"',
            'state = "redy"',
            "environment[0].state: `redy` is not one of building, ready, proven, failed, removed",
        ),
        (
            "newest-readable = { 1",
            "newest-readable = { x",
            "run[0].newest-readable.x: is not the number of an environment",
        ),
        (
            "created = 2026-11-30T08:00:00Z",
            'created = "now"',
            "environment[0].created: must be a time, not the string `now`",
        ),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(before: str, after: str, message: str) -> None:
    text = full_manifest().to_toml()
    assert before in text
    with pytest.raises(InputError) as caught:
        Manifest.from_toml(text.replace(before, after), "manifest.toml")
    assert str(caught.value) == f"manifest.toml: {message}"


def test_a_moved_environment_is_recorded_where_it_was_found() -> None:
    manifest = adopted(Manifest()).record_move(1, Path("/home/u/new/.venv"))
    assert manifest.number(1) == replace(adopted(Manifest()).number(1), path="/home/u/new/.venv")


@pytest.mark.parametrize("name", ["A; touch x", "$(id)", "", "1A", "A B"])
def test_what_a_shell_would_run_is_no_name_of_a_variable(name: str) -> None:
    manifest, _ = Manifest().begin(
        "2.15",
        within=Path("/w/envs"),
        python=BasePython("3.12.7", "/usr/bin/python3"),
        at=datetime(2026, 11, 30, 8, 0, tzinfo=UTC),
        activation=Activation(set={name: "1"}),
    )
    with pytest.raises(InputError, match="is not the name of a variable"):
        Manifest.from_toml(manifest.to_toml(), "manifest.toml")
    other = replace(manifest.number(1), activation=Activation(unset=(name,)))
    with pytest.raises(InputError, match="is not the name of a variable"):
        Manifest.from_toml(replace(manifest, environments=(other,)).to_toml(), "manifest.toml")
