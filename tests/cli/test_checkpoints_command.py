"""Checkpoints, a rollback and `run --write-for` as a shell sees them: what is printed, and which code."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoints.support import archive, call
from tests.support.checkpoints import contents, save
from tests.support.terminal import Terminal
from tests.support.workspace import write_venv


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A shell in a project with torch 2.14.1 as environment 1, 2.15.0 as 2 and in use, and a run."""
    terminal = Terminal.within(tmp_path)
    for torch in ("2.14.1+cu126", "2.15.0+cu132"):
        write_venv(tmp_path / torch, {"torch": torch})
        assert terminal.type("adopt", tmp_path / torch).code == 0
    assert terminal.type("use", "2").code == 0
    (terminal.cwd / "torchenv.toml").write_text('schema = 1\n[checkpoints]\nroots = ["runs"]\n')
    save(terminal.cwd / "runs" / "a" / "step-100", "dcp-2.14.1")
    save(terminal.cwd / "runs" / "a" / "step-200", "dcp-2.15.0")
    return terminal


def test_a_scan_is_told_to_programs_as_the_contract_says(terminal: Terminal) -> None:
    ended = terminal.type("checkpoints", "scan", "--json")
    assert ended.code == 0
    assert (ended.json["schema"], ended.json["roots"]) == ("torchenv.checkpoints/1", ["runs"])
    old, new = ended.json["checkpoints"]
    assert old["environments"] == {"1": "readable", "2": "readable"}
    assert {key: new[key] for key in new if key not in {"modified", "reader", "bytes", "weights_only"}} == {
        "path": "runs/a/step-200",
        "format": "dcp",
        "state": "complete",
        "problems": [],
        "tensors": 1,
        "foreign": [],
        "step": 200,
        "run": "runs/a",
        "kept": False,
        "copied": None,
        "environments": {"1": "unreadable", "2": "readable"},
    }
    assert new["reader"]["torch_min"] == "2.15"
    assert new["modified"].endswith("Z")


def test_a_scan_tells_people_who_reads_what_and_list_repeats_it(terminal: Terminal) -> None:
    save(terminal.cwd / "runs" / "a" / "step-300", "dcp-truncmeta")
    name = terminal.type("list", "--json").json["environments"]
    first, _ = (f"{part['number']} ({part['name']})" for part in name)
    row = "runs/a:  3 saves  newest step-200  1: reads step-100 (100 steps behind)  2: reads it"
    assert terminal.type("checkpoints", "scan").out.splitlines() == [
        "3 saves in 1 run: 2 complete",
        row,
        "1 save not complete (see --all)",
    ]
    assert terminal.type("checkpoints", "scan", "--all").out.splitlines() == [
        "3 saves in 1 run: 2 complete",
        row,
        (
            f"  runs/a: step-200 cannot be read by environment {first} (it needs torch 2.15);"
            " step-100 is the newest readable save, 100 steps behind"
        ),
        "    copy it with `torchenv checkpoints downgrade runs/a/step-200 --for 2.14`",
        "  runs/a/step-300: corrupt: .metadata: the pickle ends inside a frame",
    ]
    assert terminal.type("list").out.splitlines()[-1] == (
        "runs/a:  newest step-200  1: reads step-100 (100 steps behind)  2: reads it"
    )
    assert "checkpoints: runs/a: step-200 cannot be read" in terminal.type("show", "1").out
    assert terminal.type("show", "1", "--json").json["checkpoints"] == [
        {
            "run": "runs/a",
            "newest": "step-200",
            "newest_readable": "step-100",
            "steps_behind": 100,
            "judged": True,
        }
    ]


def third(terminal: Terminal, torch: str = "2.14.0+cpu") -> None:
    """Adopt one more environment, after the scan."""
    path = terminal.cwd.parent / torch
    write_venv(path, {"torch": torch})
    assert terminal.type("adopt", path).code == 0


def test_an_environment_that_came_after_the_scan_is_judged_from_what_the_scan_found(
    terminal: Terminal,
) -> None:
    terminal.type("checkpoints", "scan")
    terminal.type("checkpoints", "keep", "runs/a/step-100")
    third(terminal)
    assert (
        terminal.type("list")
        .out.splitlines()[-1]
        .endswith("  1: reads step-100 (100 steps behind)  2: reads it  3: reads step-100 (100 steps behind)")
    )
    verified = terminal.type("checkpoints", "verify", "--json").json
    assert verified["kept"][0]["readable-by"] == [1, 2, 3]
    assert "`torchenv checkpoints downgrade runs/a/step-200 --for 2.14`" in terminal.type("use", "3").err


def test_without_an_index_a_later_environment_is_not_said_to_read_nothing(terminal: Terminal) -> None:
    terminal.type("checkpoints", "scan")
    (terminal.workspace / "checkpoints.json").unlink()
    third(terminal)
    said = "not scanned since environment 3 was made; run `torchenv checkpoints scan`"
    assert terminal.type("list").out.splitlines()[-1] == said
    assert f"checkpoints: runs/a: {said}\n" in terminal.type("show", "3").out
    assert terminal.type("show", "3", "--json").json["checkpoints"][0]["judged"] is False
    # Who moves the pointer looks first.
    assert "step-200 cannot be read by environment 3" in terminal.type("use", "3").err
    assert terminal.type("list").out.endswith("  3: reads step-100 (100 steps behind)\n")


def test_what_was_saved_or_deleted_since_the_last_scan_is_known_at_a_rollback(terminal: Terminal) -> None:
    terminal.type("checkpoints", "scan")
    save(terminal.cwd / "runs" / "a" / "step-300", "dcp-2.15.0")
    save(terminal.cwd / "runs" / "b" / "step-7", "dcp-2.15.0")
    shutil.rmtree(terminal.cwd / "runs" / "a" / "step-200")
    said = terminal.type("status").out
    assert "runs/a: step-300 cannot be read by environment 1" in said
    assert "runs/b: step-7 cannot be read by environment 1" in said
    assert "step-300" in terminal.type("report").out

    back = terminal.type("rollback", "--with-checkpoints", "--json")
    assert (back.code, [Path(copy["source"]).name for copy in back.json["copies"]]) == (
        0,
        ["step-300", "step-7"],
    )


def test_a_run_is_found_by_its_usual_name_and_a_broken_profile_stops_no_rollback(terminal: Terminal) -> None:
    (terminal.cwd / "torchenv.toml").write_text("schema = 1\nrots = 3\n")
    back = terminal.type("rollback")
    assert back.code == 0
    assert "note: torchenv.toml: rots is not a setting\n" in back.err
    assert "runs/a: step-200 cannot be read by environment 1" in back.err


def test_a_run_is_found_by_its_usual_name_when_an_environment_is_made_active(terminal: Terminal) -> None:
    (terminal.cwd / "torchenv.toml").unlink()
    assert "runs/a: step-200 cannot be read by environment 1" in terminal.type("use", "1").err


def test_a_rollback_that_switched_and_could_not_copy_all_ends_with_1(terminal: Terminal) -> None:
    # Its shards are safetensors, which no release reads back.
    save(terminal.cwd / "runs" / "b" / "step-7", "2.15.0/dcp_safetensors")
    back = terminal.type("rollback", "--with-checkpoints")
    assert back.code == 1
    assert "not copied: runs/b/step-7: " in back.out
    assert terminal.type("list", "--json").json["current"] == 1


def test_tensors_are_listed_of_a_checkpoint_that_is_named(terminal: Terminal) -> None:
    shown = terminal.type("checkpoints", "show", "runs/a/step-200", "--tensors")
    assert (shown.code, "float32 [" in shown.out) == (0, True)
    document = terminal.type("checkpoints", "show", "runs/a/step-200", "--tensors", "--json").json
    assert document["checkpoints"][0]["contents"]["tensors"]
    assert terminal.type("checkpoints", "show", "--tensors").error == (
        2,
        "error: `--tensors` needs a checkpoint\nhint: name one: `checkpoints show --tensors PATH`\n",
    )


def test_where_no_checkpoint_is_known_a_rollback_says_so_and_what_to_type(terminal: Terminal) -> None:
    (terminal.cwd / "torchenv.toml").unlink()
    (terminal.cwd / "runs").rename(terminal.cwd / "kept-elsewhere")
    back = terminal.type("rollback")
    assert (back.code, back.err) == (
        0,
        "note: no checkpoints known; name their directories in torchenv.toml: [checkpoints] roots\n",
    )


@pytest.mark.skipif(sys.platform != "linux", reason="others take only text for a name")
def test_a_run_whose_name_is_no_text_stops_no_scan(terminal: Terminal) -> None:
    save(terminal.cwd / "runs" / os.fsdecode(b"\xff") / "step-300", "dcp-2.15.0")
    ended = terminal.type("checkpoints", "scan")
    assert ended.code == 0
    assert "'runs/\\udcff' has names that are not valid UTF-8: this run is not recorded" in ended.err
    assert "'runs/\\udcff':  1 save   newest step-300" in ended.out
    assert [line for line in terminal.type("list").out.splitlines() if line.startswith("runs")] == [
        "runs/a:  newest step-200  1: reads step-100 (100 steps behind)  2: reads it"
    ]


@pytest.mark.parametrize("action", ["scan", "show"])
def test_names_that_could_run_code_are_named_and_the_code_is_1(terminal: Terminal, action: str) -> None:
    # Case 35.
    hostile = terminal.cwd / "hostile"
    hostile.mkdir()
    for name, module, function in (
        ("canary_os.pt", "os", "system"),
        ("canary_torch.pt", "torch.utils.collect_env", "run"),
    ):
        (hostile / name).write_bytes(archive(call(module, function, "touch CANARY_UNPICKLED")))
    ended = terminal.type("checkpoints", action, "hostile")
    assert ended.code == 1
    assert "os.system" in ended.out
    assert "torch.utils.collect_env.run" in ended.out
    assert "add_safe_globals" not in ended.out + ended.err
    assert not list(terminal.cwd.rglob("CANARY*"))


def test_a_rollback_warns_and_copies_along(terminal: Terminal) -> None:
    # Case 33.
    terminal.type("checkpoints", "scan")
    before = contents(terminal.cwd / "runs")
    ended = terminal.type("rollback", "--with-checkpoints")
    assert ended.code == 0
    assert "step-200 cannot be read by environment 1" in ended.err
    assert "it needs torch 2.15" in ended.err
    copy = terminal.cwd / "runs" / "a-for-2.14" / "step-200"
    original = terminal.cwd / "runs" / "a" / "step-200"
    assert f"copied {original} to {copy}, which torch 2.14 reads\n" in ended.err
    assert "checkpoints downgrade" not in ended.err
    assert f"{copy}: copied from {terminal.cwd}/runs/a/step-200; original unchanged" in ended.out
    after = contents(terminal.cwd / "runs")
    assert {name: content for name, content in after.items() if "-for-" not in name} == before
    again = terminal.type("use", "2")
    assert again.code == 0
    back = terminal.type("rollback", "--json")
    assert back.err.endswith("; its copy runs/a-for-2.14/step-200 can\n")
    assert back.json["checkpoints"] == [
        {
            "run": "runs/a",
            "newest_readable": "runs/a-for-2.14/step-200",
            "steps_behind": 0,
            "unreadable": ["runs/a/step-200"],
            "downgradable": ["runs/a/step-200"],
        }
    ]


def test_who_is_asked_before_a_rollback_has_read_the_warning(terminal: Terminal) -> None:
    terminal.type("checkpoints", "scan")
    ended = terminal.type("rollback", "--ask")
    said = ended.err.splitlines()
    assert "step-200 cannot be read" in said[0]
    assert said[-2].startswith("switch back to environment 1")
    assert terminal.type("list", "--json").json["current"] == 2


def test_an_environment_that_was_deleted_is_no_reader_of_what_is_kept(
    terminal: Terminal, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "2.14.1+cu126")
    ended = terminal.type("checkpoints", "keep", Path("runs") / "a" / "step-100")
    assert ended.code == 0
    assert "readable by 2 (" in ended.out
    assert "1 (" not in ended.out


def test_keep_verify_and_release(terminal: Terminal) -> None:
    step = Path("runs") / "a" / "step-100"
    kept = terminal.type("checkpoints", "keep", step)
    assert kept.code == 0
    assert kept.out.startswith("runs/a/step-100 is kept: 2 files, ")
    assert kept.out.endswith(
        "  protected by its hashes only: `torchenv checkpoints verify` notices a change,\n"
        "  `torchenv checkpoints keep --copy runs/a/step-100` keeps a copy of the bytes\n"
    )
    assert terminal.type("checkpoints", "verify").out == "runs/a/step-100: unchanged\n"
    (terminal.cwd / step / "__0_0.distcp").write_bytes(b"")
    changed = terminal.type("checkpoints", "verify")
    assert (changed.code, changed.out) == (1, "runs/a/step-100/__0_0.distcp: changed\n")
    assert terminal.type("checkpoints", "verify", "--json").json["changes"] == [
        {"path": "runs/a/step-100", "file": "__0_0.distcp", "what": "changed"}
    ]
    released = terminal.type("checkpoints", "keep", "--release", step, "--json")
    assert (released.code, released.json["kept"]) == (0, [])
    assert [item["path"] for item in released.json["released"]] == ["runs/a/step-100"]
    assert terminal.type("checkpoints", "verify").code == 0


def test_keep_looks_again_and_names_a_newer_save_that_is_as_good(terminal: Terminal) -> None:
    step = Path("runs") / "a" / "step-100"
    # The environment that alone needs it reads no newer one.
    assert "behind" not in terminal.type("checkpoints", "keep", step).err
    save(terminal.cwd / "runs" / "a" / "step-150", "dcp-2.14.1")
    said = terminal.type("checkpoints", "keep", step).err
    assert "runs/a/step-100 is 50 steps behind step-150, which environment 1 reads too" in said


def test_what_is_printed_of_a_checkpoint_names_it_from_any_folder_of_the_project(terminal: Terminal) -> None:
    below = terminal.cwd / "src"
    below.mkdir()
    inside = replace(terminal, cwd=below)
    advised = next(
        line for line in inside.type("checkpoints", "scan", "--all").out.splitlines() if "`" in line
    )
    command = shlex.split(advised.partition("`")[2].rstrip("`"))
    assert command == ["torchenv", "checkpoints", "downgrade", "runs/a/step-200", "--for", "2.14"]
    assert inside.type(*command[1:]).code == 0
    assert (terminal.cwd / "runs" / "a-for-2.14" / "step-200" / ".metadata").is_file()
    assert inside.type("checkpoints", "keep", "runs/a/step-100").code == 0
    shutil.rmtree(terminal.cwd / "runs" / "a" / "step-100")
    assert inside.type("checkpoints", "keep", "--release", "runs/a/step-100").code == 0
    # What is there under that name is what a person means.
    save(below / "runs" / "a" / "step-200", "dcp-2.14.1")
    shown = inside.type("checkpoints", "show", "runs/a/step-200", "--json").json["checkpoints"]
    assert [checkpoint["environments"]["1"] for checkpoint in shown] == ["readable"]


def test_a_downgrade_says_what_it_made_or_why_it_made_nothing(terminal: Terminal) -> None:
    made = terminal.type("checkpoints", "downgrade", "runs/a/step-200", "--for", "2.14", "--json")
    assert made.code == 0
    (copy,) = made.json["copies"]
    assert (Path(copy["copy"]).name, copy["made"], copy["files"]) == ("step-200", True, 1)
    again = terminal.type("checkpoints", "downgrade", "runs", "--for", "2.14", "--newest")
    runs = terminal.cwd / "runs"
    said = f"{runs}/a/step-200: nothing to do, already copied to {runs}/a-for-2.14/step-200\n"
    assert (again.code, again.out) == (0, said)
    named = terminal.type("checkpoints", "downgrade", "runs/a/step-200", "--for", "2.14", "--as", "step-150")
    assert f"{terminal.cwd}/runs/a-for-2.14/step-150: copied from" in named.out
    refused = terminal.type("checkpoints", "downgrade", "runs/a/step-200", "--for", "2.3")
    assert refused.code == 3
    assert "torch 2.3 cannot read a copy" in refused.err


def test_what_torchenv_made_itself_is_a_copy_and_never_the_newest_save(terminal: Terminal) -> None:
    for words in (
        ("downgrade", "runs/a/step-200", "runs/a/mine-300", "--for", "2.14"),
        ("keep", "runs/a/step-100", "--copy-to", "runs/a"),
    ):
        assert terminal.type("checkpoints", *words).code == 0
    # As convert notes it, which takes a real torch.
    save(terminal.cwd / "runs" / "a" / "step-200.other", "dcp-2.15.0")
    runs = terminal.cwd / "runs" / "a"
    with (terminal.workspace / "copies").open("a") as noted:
        noted.write(f"converted\t{runs / 'step-200.other'}\t{runs / 'step-200'}\n")

    scanned = terminal.type("checkpoints", "scan")
    assert scanned.out.splitlines()[0] == "2 saves in 1 run: 2 complete"
    assert "2 saves, 3 copies" in scanned.out.splitlines()[1]
    found = terminal.type("checkpoints", "scan", "--json").json["checkpoints"]
    copied = {Path(line["path"]).name[:14]: line["copied"] for line in found}
    assert copied.pop("step-100") is copied.pop("step-200") is None
    assert sorted(copied.values()) == ["converted", "downgraded", "kept"]
    (line,) = (line for line in terminal.type("list").out.splitlines() if line.startswith("runs/a:"))
    assert "newest step-200 " in line
    assert terminal.type("rollback", "--json").json["checkpoints"][0]["unreadable"] == ["runs/a/step-200"]
    # Once the original is gone, the copy is what is left of it.
    shutil.rmtree(runs / "step-200")
    assert "newest mine-300" in terminal.type("checkpoints", "scan").out


def test_writing_for_an_older_torch_is_said_once_and_reaches_the_command(terminal: Terminal) -> None:
    code = "import os; print(os.environ.get('TORCHENV_WRITE_FOR'))"
    ended = terminal.start("run", "--write-for", "2.14", "--", "python", "-c", code)
    assert (ended.code, ended.out) == (0, "2.14\n")
    assert ended.err == "distributed checkpoints are written for torch 2.14 here: without strides\n"
    with (terminal.cwd / "torchenv.toml").open("a") as profile:
        profile.write('write-for = "2.14"\n')
    assert terminal.start("run", "--", "python", "-c", code).out == "2.14\n"
    assert terminal.start("run", "-e", "1", "--", "python", "-c", code).out == "None\n"


def test_a_gate_ends_with_1_where_the_way_back_is_closed(terminal: Terminal) -> None:
    gate = terminal.type("checkpoints", "gate", "--readable-by", "2.14", "runs")
    assert (gate.code, gate.out.startswith("runs/a/step-200: torch 2.14 cannot read it: ")) == (1, True)
    assert terminal.type("checkpoints", "gate", "--readable-by", "2.15").out == (
        "torch 2.15 reads the newest complete save of 1 run\n"
    )
    document = terminal.type("checkpoints", "gate", "--readable-by", "2.14", "--json").json
    assert [finding["code"] for finding in document["findings"]] == ["unreadable"]


def test_two_checkpoints_are_compared(terminal: Terminal) -> None:
    save(terminal.cwd / "other", "2.15.0/dcp_multifile")
    done = terminal.type("checkpoints", "diff", "runs/a/step-200", "other")
    assert done.code == 0
    assert "only in other: " in done.out
    same = terminal.type("checkpoints", "diff", "runs/a/step-100", "runs/a/step-200", "--json").json
    assert (same["schema"], same["only_from"], same["changed"]) == ("torchenv.checkpoints-diff/1", [], [])
    assert terminal.type("checkpoints", "diff", "none", "other").code == 2


def test_a_save_in_the_new_form_is_found_after_a_run_that_was_to_write_the_old(terminal: Terminal) -> None:
    code = (
        "import shutil; shutil.copytree('runs/a/step-200', 'runs/a/step-300', copy_function=shutil.copyfile)"
    )
    ended = terminal.start("run", "--write-for", "2.14", "--", "python", "-c", code)
    path = terminal.cwd / "runs" / "a" / "step-300"
    assert ended.code == 1
    assert f"{path}: torch 2.14 cannot read it: " in ended.err
    assert f"`torchenv checkpoints downgrade {path} --for 2.14`" in ended.err
    # What was there before is none of this run's.
    assert "step-200" not in ended.err


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX ones")
def test_a_run_that_is_watched_ends_as_its_command_does(terminal: Terminal) -> None:
    watched = ("run", "--write-for", "2.14", "--", "python", "-c")
    assert terminal.start(*watched, "raise SystemExit(7)").code == 7
    assert terminal.start(*watched, "import os; os.kill(os.getpid(), 9)").code == -9


def test_a_command_that_would_lose_the_hook_does_not_start(terminal: Terminal) -> None:
    ended = terminal.start("run", "--write-for", "2.14", "--", "python", "-I", "-c", "print('started')")
    assert (ended.code, ended.out) == (3, "")
    assert ended.error[1] == (
        "error: --write-for would be lost: `python -I` ignores it\n"
        "hint: run the command without that, or in an environment that torchenv built (`torchenv create`)\n"
    )


def test_what_a_run_wrote_is_known_at_the_next_rollback(terminal: Terminal) -> None:
    (terminal.cwd / "torchenv.toml").unlink()
    (terminal.cwd / "runs").rename(terminal.cwd.parent / "scratch")
    folder = terminal.cwd.parent / "scratch" / "a"
    code = f"import os; open(os.environ['TORCHENV_WRITTEN'], 'a').write({f'{folder}{os.linesep}'!r})"
    assert terminal.start("run", "--", "python", "-c", code).code == 0
    assert f"{folder}: step-200 cannot be read by environment 1" in terminal.type("rollback").err


def test_the_users_own_path_stays_and_another_torch_on_it_is_said(terminal: Terminal) -> None:
    other = terminal.cwd.parent / "module"
    (other / "torch").mkdir(parents=True)
    (other / "torch" / "__init__.py").write_text("__version__ = '2.9.0'\n")
    code = "import sys; print(sys.path[1])"
    ended = terminal.start("run", "--", "python", "-c", code, PYTHONPATH=str(other))
    assert ended.out == f"{other}\n"
    assert ended.err == f"note: PYTHONPATH puts another torch first: {other}\n"


def test_torchrun_of_another_installation_is_not_taken(terminal: Terminal) -> None:
    # Case 69: the module's torchrun runs the module's Python.
    module = terminal.cwd.parent / "module"
    module.mkdir()
    (module / "torchrun").write_text("#!/bin/sh\necho the module\n")
    (module / "torchrun").chmod(0o755)
    ended = terminal.start("run", "-e", "1", "--", "torchrun", "train.py", PATH=f"{module}:{os.defpath}")
    assert "the module" not in ended.out
    assert "has no `torchrun`; running `python -m torch.distributed.run`" in ended.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["scan", "none"], 2, "none` does not exist\nhint: name a checkpoint or a folder that exists"),
        (["keep", "none"], 2, "none` does not exist\nhint: name a checkpoint or a folder that exists"),
        (["downgrade", "none", "--for", "2.14"], 2, "none` does not exist"),
        (["downgrade", "runs/a/step-200", "--for", "old"], 2, "`old` is not a version of torch"),
        (["downgrade", "runs/a/step-200"], 2, "--for"),
        (["show"], 3, "no index of checkpoints"),
        (["scam"], 2, "`torchenv checkpoints scam` not found"),
    ],
)
def test_a_mistake_is_named(terminal: Terminal, words: list[str], code: int, said: str) -> None:
    ended = terminal.type("checkpoints", *words)
    assert ended.code == code
    assert said in ended.err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(terminal: Terminal) -> None:
    shard = terminal.cwd / "runs" / "a" / "step-100" / "__0_0.distcp"
    terminal.type("checkpoints", "keep", shard.parent)
    shard.chmod(0)
    ended = terminal.type("checkpoints", "keep", shard.parent)
    assert ended.error == (4, f"error: {shard}: Permission denied\n")


def test_a_directory_where_nothing_can_be_written_is_named(terminal: Terminal) -> None:
    (terminal.cwd / "file").write_text("")
    ended = terminal.type("checkpoints", "downgrade", "runs/a/step-200", "file/copy", "--for", "2.14")
    assert ended.code in (4, 5)
    assert f"{terminal.cwd}/file" in ended.err
    assert "Traceback" not in ended.err
