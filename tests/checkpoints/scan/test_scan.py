"""A scan finds checkpoints, groups them into runs, and looks again only at what has changed."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.checkpoints.support import CASES, SAMPLES, archive, call
from tests.support.checkpoints import contents, save, settle

from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.scan.index import ScanIndex
from torchenv.checkpoints.scan.runs import Judge, run_line, runs_of
from torchenv.environment.base_python import BasePython
from torchenv.errors import InputError
from torchenv.storage import local, place
from torchenv.workspace.records import Environment, EnvironmentKind, Run, State


def environment(number: int, torch: str, python: str = "3.11.7") -> Environment:
    return Environment(
        number=number,
        name=torch,
        kind=EnvironmentKind.ADOPTED,
        state=State.READY,
        path=f"/{torch}",
        python=BasePython(python, "/usr/bin/python3"),
        torch=torch,
        created=datetime(2026, 11, 30, 8, tzinfo=UTC),
    )


OLD, NEW = environment(1, "2.14.1+cu126"), environment(2, "2.15.0+cu132")


def scanned(root: Path, before: ScanIndex | None = None) -> ScanIndex:
    return scan([place(root)], before, lambda _: None)


def states(root: Path) -> dict[str, str]:
    index = scanned(root)
    runs = runs_of(index, lambda path: path.removeprefix(f"{root}/"))
    return {part.path: part.found.state for run in runs for save in run.saves for part in save.parts}


def lines(root: Path) -> tuple[Run, ...]:
    index = scanned(root)
    judge = Judge(index, [OLD, NEW], "linux")
    return tuple(run_line(run, judge) for run in runs_of(index, lambda path: path.removeprefix(f"{root}/")))


def test_the_newest_usable_save_is_the_newest_complete_one(tmp_path: Path) -> None:
    # Case 37: the folder of a killed save has the highest step.
    save(tmp_path / "a" / "step-100", "dcp-2.14.1")
    save(tmp_path / "a" / "step-200", "dcp-nometa")
    save(tmp_path / "a" / "step-300", "dcp-truncmeta")
    save(tmp_path / "a" / "step-400", "dcp-missingshard")
    before = contents(tmp_path)

    assert states(tmp_path) == {
        "a/step-100": "complete",
        "a/step-200": "incomplete",
        "a/step-300": "corrupt",
        "a/step-400": "corrupt",
    }
    assert lines(tmp_path) == (
        Run(
            path="a",
            newest="step-100",
            newest_readable={1: "step-100", 2: "step-100"},
            needs="2.4",
            broken=("step-200", "step-300", "step-400"),
        ),
    )
    assert contents(tmp_path) == before


def test_each_run_has_the_newest_that_each_environment_reads(tmp_path: Path) -> None:
    save(tmp_path / "a" / "step-100", "dcp-2.14.1")
    save(tmp_path / "a" / "step-1000", "dcp-2.15.0")
    save(tmp_path / "a" / "step-900", "dcp-2.15.0")
    save(tmp_path / "b" / "step-5", "2.15.0-py313/dcp_plain")

    assert lines(tmp_path) == (
        Run(
            path="a",
            newest="step-1000",
            newest_readable={1: "step-100", 2: "step-1000"},
            needs="2.15",
            downgrades_for=(1,),
        ),
        # It names a path that only Python 3.13 has, which a copy for these does not.
        Run(path="b", newest="step-5", needs="2.15", downgrades_for=(1, 2)),
    )


def test_a_downgraded_copy_is_readable_and_the_original_stays_the_newest(tmp_path: Path) -> None:
    save(tmp_path / "a" / "step-200", "dcp-2.15.0")
    save(tmp_path / "a" / "step-200-for-2.14", "dcp-2.14.1")
    assert lines(tmp_path) == (
        Run(
            path="a",
            newest="step-200",
            newest_readable={1: "step-200-for-2.14", 2: "step-200"},
            needs="2.15",
            downgrades_for=(1,),
        ),
    )


def test_what_is_saved_together_is_read_together(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint-500" / "model", "dcp-2.14.1")
    save(tmp_path / "checkpoint-500" / "optimizer", "dcp-2.15.0")
    (line,) = lines(tmp_path)
    assert (line.newest, line.newest_readable) == ("checkpoint-500", {2: "checkpoint-500"})


def test_single_files_of_a_run_are_saves_of_their_own(tmp_path: Path) -> None:
    for step in (100, 200):
        shutil.copy(SAMPLES / "2.8.0" / "ts_plain" / "ck.pt", tmp_path / f"model_{step}.pt")
    (tmp_path / "notes.txt").write_text("a note")
    (tmp_path / "tokens.bin").write_bytes(b"no checkpoint at all")
    assert states(tmp_path) == {"model_100.pt": "complete", "model_200.pt": "complete"}


def test_a_single_file_can_be_the_root(tmp_path: Path) -> None:
    file = tmp_path / "model_100.pt"
    shutil.copy(SAMPLES / "2.8.0" / "ts_plain" / "ck.pt", file)
    ((root, address, _, found),) = scanned(file)
    assert (root, address, found.name, found.format) == (str(file), str(file), "", "torch-zip")


def test_links_are_followed_and_nothing_is_listed_twice(tmp_path: Path) -> None:
    outside = save(tmp_path / "scratch" / "b" / "step-900", "dcp-2.15.0")
    root = tmp_path / "runs"
    inside = save(root / "a" / "step-100", "dcp-2.14.1")
    shutil.copy(SAMPLES / "2.8.0" / "ts_plain" / "ck.pt", root / "a" / "model_200.pt")
    # A run on another disk, twice and from within; a second name of a save; circles; the whole system.
    (root / "b").symlink_to(outside.parent)
    (root / "same").symlink_to(outside.parent)
    (root / "z").symlink_to(outside)
    (outside.parent / "back").symlink_to(root)
    (root / "a" / "latest").symlink_to(inside)
    (root / "a" / "last.pt").symlink_to("model_200.pt")
    (root / "around").symlink_to(root)
    (root / "above").symlink_to(tmp_path)
    (root / "processes").symlink_to("/proc/self")
    assert states(root) == {
        "a/step-100": "complete",
        "a/model_200.pt": "complete",
        "b/step-900": "complete",
    }


def test_what_another_root_holds_is_not_listed_behind_a_link_too(tmp_path: Path) -> None:
    outside = save(tmp_path / "scratch" / "b" / "step-900", "dcp-2.15.0")
    root = tmp_path / "runs"
    save(root / "a" / "step-100", "dcp-2.14.1")
    (root / "b").symlink_to(outside.parent)
    index = scan([place(root), place(tmp_path / "scratch")], None, lambda _: None)
    assert [address for _, address, _, _ in index] == [str(root / "a" / "step-100"), str(outside)]


def test_what_lies_behind_a_link_is_looked_at_again(tmp_path: Path) -> None:
    outside = save(tmp_path / "scratch" / "step-900", "dcp-2.15.0")
    root = tmp_path / "runs"
    root.mkdir()
    (root / "b").symlink_to(outside.parent)
    settle(tmp_path)
    first = ScanIndex.from_json(scanned(root).to_json())
    assert first is not None
    assert (scanned(root, first).read, scanned(root, first).roots) == (0, first.roots)
    save(tmp_path / "scratch" / "step-1000", "dcp-2.15.0")
    again = scanned(root, first)
    assert {Path(address).name for _, address, _, _ in again} == {"step-900", "step-1000"}
    assert again.read == 1


def test_a_snapshot_whose_files_are_links_into_its_cache_is_read(tmp_path: Path) -> None:
    # models--ada--tiny/snapshots/REVISION/model.safetensors -> ../../blobs/SHA: huggingface_hub.
    snapshot = tmp_path / "models--ada--tiny" / "snapshots" / "0123"
    blobs = tmp_path / "models--ada--tiny" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted((SAMPLES / "2.15.0" / "hf").glob("*"))):
        shutil.copy(path, blobs / f"{number:064}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:064}")
    (state,) = states(snapshot).values()
    assert state == "complete"
    assert list(states(tmp_path).values()) == ["complete"]


def test_not_more_directories_are_followed_than_a_training_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_MOST_LINKED", 3)
    (tmp_path / "runs").mkdir()
    for number in range(5):
        (tmp_path / "data" / str(number)).mkdir(parents=True)
    (tmp_path / "runs" / "data").symlink_to(tmp_path / "data")
    said: list[str] = []
    scan([place(tmp_path / "runs")], None, said.append)
    assert said == [f"{tmp_path}/runs/data/2 was not followed: over 3 directories lie behind links"]


def test_names_that_could_run_code_are_told_and_nothing_runs(tmp_path: Path) -> None:
    # Case 35.
    (tmp_path / "canary.pt").write_bytes(archive(call("os", "system", f"touch {tmp_path}/CANARY_UNPICKLED")))
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / ".metadata").write_bytes(
        call("torch.utils.collect_env", "run", "touch CANARY_UNPICKLED")
    )
    assert [found.foreign for _, _, _, found in scanned(tmp_path)] == [
        ["os.system"],
        ["torch.utils.collect_env.run"],
    ]
    assert not (tmp_path / "CANARY_UNPICKLED").exists()


def test_what_did_not_change_is_not_read_again(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        save(tmp_path / "a" / f"step-{step}", "dcp-2.15.0")
    first = scanned(tmp_path)
    again = scanned(tmp_path, first)
    assert (first.read, again.read) == (3, 0)
    assert again.roots == first.roots


def test_the_index_is_the_same_after_it_was_written_and_read(tmp_path: Path) -> None:
    save(tmp_path / "a" / "step-100", "dcp-2.15.0")
    save(tmp_path / "a" / "step-200", "dcp-truncmeta")
    index = scanned(tmp_path)
    read = ScanIndex.from_json(index.to_json())
    assert read is not None
    assert (read.roots, read.readers) == (index.roots, index.readers)
    assert scanned(tmp_path, read).read == 0


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"schema": "torchenv.checkpoint-index/1", "made-by": "x"}']
)
def test_an_index_that_this_torchenv_did_not_write_is_made_anew(text: str) -> None:
    assert ScanIndex.from_json(text) is None


def test_a_shard_that_was_cut_is_noticed_though_no_name_changed(tmp_path: Path) -> None:
    saved = save(tmp_path / "a" / "step-100", "dcp-2.15.0")
    first = scanned(tmp_path)
    (saved / "__0_0.distcp").write_bytes(b"")
    settle(tmp_path)

    again = scanned(tmp_path, first)
    assert again.read == 1
    ((*_, found),) = again
    assert (found.state, found.problems) == (
        "corrupt",
        [["shard-short", "__0_0.distcp has 0 bytes, its metadata needs 2838"]],
    )


def test_what_is_added_and_what_is_gone_is_noticed(tmp_path: Path) -> None:
    save(tmp_path / "a" / "step-100", "dcp-2.14.1")
    gone = save(tmp_path / "a" / "step-200", "dcp-2.14.1")
    first = scanned(tmp_path)
    save(tmp_path / "a" / "step-300", "dcp-2.15.0")
    shutil.rmtree(gone)
    settle(tmp_path)

    again = scanned(tmp_path, first)
    found = [Path(address).name for _, address, _, _ in again]
    assert (sorted(found), again.read) == (["step-100", "step-300"], 1)


def test_a_save_that_goes_on_while_it_is_looked_at_is_looked_at_again(tmp_path: Path) -> None:
    going_on = tmp_path / "step-100"
    going_on.mkdir()
    (going_on / "__0_0.distcp").write_bytes(b"")
    first = scanned(tmp_path)
    shutil.copy(CASES / "dcp-2.15.0" / ".metadata", going_on)
    shutil.copy(CASES / "dcp-2.15.0" / "__0_0.distcp", going_on)
    ((*_, found),) = scanned(tmp_path, first)
    assert found.state == "complete"


def test_a_root_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        scanned(tmp_path / "none")
    assert str(raised.value) == f"`{tmp_path}/none` does not exist"


def test_a_link_in_a_circle_hides_nothing_beside_it(tmp_path: Path) -> None:
    step = save(tmp_path / "a" / "step-100", "dcp-2.14.1")
    (step / "loop.pt").symlink_to("loop.pt")
    (step / "latest").symlink_to("latest")
    (tmp_path / "a" / "me").symlink_to("me")
    (tmp_path / "a" / "up.pt").symlink_to("..")
    assert states(tmp_path) == {"a/step-100": "complete"}
    # A scan looks past it; a copy would be without it, so what copies or hashes a save refuses it.
    with pytest.raises(InputError) as refused:
        place(step).files()
    assert "is a link" in str(refused.value)
    with pytest.raises(InputError) as raised:
        scanned(tmp_path / "a" / "me")
    assert "cannot be opened" in str(raised.value)


def test_a_file_that_is_named_itself_may_be_a_link(tmp_path: Path) -> None:
    file = tmp_path / "blobs" / "0123"
    file.parent.mkdir()
    file.write_bytes(archive(b"\x80\x02}q\x00."))
    link = tmp_path / "snapshots" / "model.pt"
    link.parent.mkdir()
    link.symlink_to(file)
    assert states(link.parent) == {"model.pt": "complete"}
    assert [found.state for _, _, _, found in scanned(link)] == ["complete"]


@pytest.mark.parametrize(
    ("name", "start", "said"),
    [
        (".metadata", b"", ".metadata: a pickle of 2199023255552 bytes is too large to open"),
        ("a.safetensors", b"\0\0\0\0\0\1\0\0{", "a.safetensors: it is not what safetensors writes"),
        ("a.safetensors.index.json", b"{", "a.safetensors.index.json: it is not what safetensors writes"),
        ("a.pt", b"PK\3\4", "the archive cannot be read: File is not a zip file"),
    ],
)
def test_a_file_of_terabytes_is_not_read(tmp_path: Path, name: str, start: bytes, said: str) -> None:
    with (tmp_path / name).open("wb") as file:
        file.write(start)
        try:
            file.truncate(2 << 40)
        except OSError:
            pytest.skip("this file system has no such large files")
    ((*_, found),) = scanned(tmp_path)
    assert (found.state, [message for _, message in found.problems]) == ("corrupt", [said])


def test_numbers_in_names_ask_for_no_more_than_is_there(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "__99999999999.metadata").touch()
    (tmp_path / "files").mkdir()
    for number in range(300):
        (tmp_path / "files" / f"m{number}x-1-of-99999999999.safetensors").touch()
    assert states(tmp_path) == {"ranks": "corrupt", "files": "corrupt"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    closed = save(tmp_path / "a" / "step-200", "dcp-2.14.1")
    save(tmp_path / "a" / "step-100", "dcp-2.14.1")
    closed.chmod(0)
    said: list[str] = []
    scan([place(tmp_path)], None, said.append)
    assert said == [f"{closed} cannot be opened: Permission denied"]
    assert states(tmp_path) == {"a/step-100": "complete"}
    closed.chmod(0o700)
