"""One run is one line of saves, whatever its trainer's layout, and a save is complete when all its parts are.

The samples are what scripts/samples/layouts.py let each trainer's own writer write.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.checkpoints.support import DATA, SAMPLES
from tests.support.checkpoints import LONG_AGO, save, settle

from torchenv.actions.downgrade import DowngradeTarget, downgrade
from torchenv.catalogue.resources import read_packaged
from torchenv.checkpoints.layouts import layouts
from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.scan.runs import Saves, runs_of
from torchenv.checkpoints.steps import behind
from torchenv.errors import NothingSuits
from torchenv.storage import place
from torchenv.storage.names import LAYOUTS, is_part

LAYOUT_SAMPLES = DATA / "layouts"
LIGHTNING = "lightning_logs/version_0/checkpoints"
NEMO = "tiny--val_loss={}-step={}-consumed_samples={}.0"

# Of each sample: its run, and the saves with their steps, the oldest first; in brackets what is not whole.
EXPECTED = {
    "accelerate": ("checkpoints", [("checkpoint_0", 0), ("checkpoint_1", 1)]),
    "accelerate-fsdp": ("checkpoints", [("checkpoint_0", 0), ("checkpoint_1", 1)]),
    "deepspeed": ("runs/tiny", [("global_step1", 1), ("global_step2", 2)]),
    "lightning": (LIGHTNING, [("epoch=0-step=1.ckpt", 1), ("epoch=0-step=2.ckpt", 2), ("last.ckpt", None)]),
    "lightning-folders": (LIGHTNING, [("epoch=0-step=1.ckpt", 1), ("epoch=1-step=2.ckpt", 2)]),
    "megatron": ("runs/tiny", [("iter_0000010", 10), ("iter_0000020", 20)]),
    "nemo": (
        "tiny/checkpoints",
        [
            (NEMO.format("3.25", 9, 36), 9),
            (NEMO.format("2.50", 19, 76), 19),
            (f"[{NEMO.format('2.25', 29, 116)}]", 29),
        ],
    ),
    "torchtitan": ("outputs/checkpoint", [("step-1", 1), ("step-2", 2)]),
    "torchtune": ("out", [("epoch_0", 0), ("epoch_1", 1)]),
    "transformers": ("outputs", [("checkpoint-1", 1), ("checkpoint-2", 2)]),
}


def bring(sample: str, root: Path) -> Path:
    """Copy a sample to where a training would have written it, long ago."""
    shutil.copytree(LAYOUT_SAMPLES / sample, root)
    settle(root)
    return root


def group(root: Path) -> list[Saves]:
    return runs_of(scan([place(root)], None, lambda _: None), lambda path: path.removeprefix(f"{root}/"))


def find_broken(root: Path) -> dict[str, list[str]]:
    """Return what is said of each save that is not complete."""
    return {
        found.name: [message for part in found.parts for _, message in part.found.problems]
        for run in group(root)
        for found in run.saves
        if not found.complete
    }


@pytest.mark.parametrize("sample", EXPECTED)
def test_a_run_is_one_line_of_saves_whatever_its_layout(sample: str, tmp_path: Path) -> None:
    path, saves = EXPECTED[sample]
    (run,) = group(bring(sample, tmp_path / "root"))
    assert run.path == path
    shown = [(found.name if found.complete else f"[{found.name}]", found.step) for found in run.saves]
    assert shown == saves


def test_every_layout_that_has_a_writer_has_its_sample() -> None:
    written = {path.name for path in LAYOUT_SAMPLES.iterdir()}
    assert written == set(EXPECTED)
    # Of these three a writer is no package; the fourth is the name of what others write.
    without = {"megatron-core", "megatron-legacy", "detectron2", "loop"}
    assert {layout.name for layout in layouts().layouts} - written == without


def test_every_layout_says_where_it_is_from_and_a_scan_sees_what_it_names() -> None:
    names = [layout.name for layout in layouts().layouts]
    assert len(names) == len(set(names))
    assert all(layout.source for layout in layouts().layouts)
    assert all(map(is_part, layouts().pointers))
    needs = (
        name
        for layout in read_packaged(LAYOUTS).tables("layout")
        for part in layout.tables("part")
        for name in part.strings("needs")
    )
    assert [name for name in needs if not is_part(name.rpartition("/")[2].replace("*", "1"))] == []


@pytest.mark.parametrize(
    ("sample", "gone", "name", "said"),
    [
        (
            "accelerate",
            "checkpoint_1/random_states_0.pkl",
            "checkpoint_1",
            "no random_states_*.pkl: the save did not finish",
        ),
        (
            "accelerate-fsdp",
            "checkpoint_1/random_states_0.pkl",
            "checkpoint_1",
            "random_states_0.pkl is not there",
        ),
        (
            "accelerate-fsdp",
            "checkpoint_1/pytorch_model_fsdp_0",
            "checkpoint_1",
            "no pytorch_model_fsdp_0/.metadata: the save did not finish",
        ),
        (
            "deepspeed",
            "global_step2/*_rank_0_*optim_states.pt",
            "global_step2",
            "zero_pp_rank_0_mp_rank_*_optim_states.pt is not there",
        ),
        (
            "deepspeed",
            "global_step2/mp_rank_00_model_states.pt",
            "global_step2",
            "no *mp_rank_*_model_states.pt: the save did not finish",
        ),
        (
            "lightning-folders",
            "epoch=1-step=2.ckpt/meta.pt",
            "epoch=1-step=2.ckpt",
            "no meta.pt: the save did not finish",
        ),
        (
            "megatron",
            "iter_0000020/metadata.json",
            "iter_0000020",
            "no metadata.json: the save did not finish",
        ),
        ("megatron", "iter_0000020/.metadata", "iter_0000020", "no .metadata: the save did not finish"),
        (
            "nemo",
            "*step=19*/weights/metadata.json",
            NEMO.format("2.50", 19, 76),
            "no weights/metadata.json: the save did not finish",
        ),
        ("torchtitan", "step-2/__1_0.distcp", "step-2", "__1_0.distcp is missing"),
        (
            "transformers",
            "checkpoint-2/trainer_state.json",
            "checkpoint-2",
            "no trainer_state.json: the save did not finish",
        ),
    ],
)
def test_a_save_that_lacks_a_part_is_not_complete(
    tmp_path: Path, sample: str, gone: str, name: str, said: str
) -> None:
    root = bring(sample, tmp_path / "root")
    lost = list(root.rglob(gone))
    assert lost
    for path in lost:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert said in find_broken(root)[name]


def test_what_lies_beside_the_saves_for_the_newest_is_part_of_it(tmp_path: Path) -> None:
    root = bring("torchtune", tmp_path / "root")
    (root / "out" / "recipe_state" / "recipe_state.pt").write_bytes(b"")
    assert list(find_broken(root)) == ["epoch_1"]


@pytest.mark.parametrize(
    ("pointer", "content"), [("latest", "step-100"), ("latest_checkpointed_iteration.txt", "100")]
)
def test_a_save_that_its_pointer_does_not_name_yet_is_not_finished(
    tmp_path: Path, pointer: str, content: str
) -> None:
    for step in (100, 200):
        save(tmp_path / "a" / f"step-{step}", "dcp-2.15.0")
    path = tmp_path / "a" / pointer
    path.write_text(content)
    settle(tmp_path)
    said = f"{pointer} names {content}, and its writer names a save once it is finished"
    assert find_broken(tmp_path) == {"step-200": [said]}
    # Who wrote the pointer after the save knew of it: to resume from an older one.
    os.utime(path, (LONG_AGO + 60, LONG_AGO + 60))
    assert find_broken(tmp_path) == {}


def test_a_pointer_to_what_is_not_there_says_nothing(tmp_path: Path) -> None:
    save(tmp_path / "a" / "step-100", "dcp-2.15.0")
    (tmp_path / "a" / "latest").write_text("step-50")
    settle(tmp_path)
    assert find_broken(tmp_path) == {}


@pytest.mark.parametrize("name", ["step-200.tmp", "tmp-checkpoint-200", "step-200.incomplete"])
def test_a_save_whose_name_says_so_is_not_finished(tmp_path: Path, name: str) -> None:
    save(tmp_path / "a" / "step-100", "dcp-2.15.0")
    save(tmp_path / "a" / name, "dcp-2.15.0")
    assert find_broken(tmp_path) == {name: [f"by its name it is not finished: {name}"]}


def test_a_marker_beside_a_save_says_that_it_is_not_finished(tmp_path: Path) -> None:
    save(tmp_path / "a" / "step-100", "dcp-2.15.0")
    (tmp_path / "a" / "step-100-unfinished").touch()
    said = "step-100-unfinished is there until it is finished"
    assert find_broken(tmp_path) == {"step-100": [said]}


def test_a_file_whose_name_says_so_is_told_as_a_save_that_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "model_100.pt.tmp").write_bytes(b"PK")
    settle(tmp_path)
    said = "by its name it is not finished: model_100.pt.tmp"
    assert find_broken(tmp_path) == {"model_100.pt.tmp": [said]}


def test_shards_that_an_index_names_and_that_are_missing_are_named(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoint-5"
    directory.mkdir()
    shards = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    index = directory / "pytorch_model.bin.index.json"
    index.write_text(f'{{"weight_map": {{"a": "{shards[0]}", "b": "{shards[1]}"}}}}')
    said = f"{shards[1]} is missing, though {index.name} names it"
    both = f"{shards[0]}, {said}"
    assert find_broken(tmp_path) == {"checkpoint-5": [both]}
    shutil.copy(SAMPLES / "2.15.0" / "ts_plain" / "ck.pt", directory / shards[0])
    assert find_broken(tmp_path) == {"checkpoint-5": [said]}
    shutil.copy(SAMPLES / "2.15.0" / "ts_plain" / "ck.pt", directory / shards[1])
    assert find_broken(tmp_path) == {}
    index.write_text("[]")
    assert find_broken(tmp_path)["checkpoint-5"][0] == f"{index.name}: it is not an index of shards"


def test_a_folder_without_a_step_is_one_save(tmp_path: Path) -> None:
    shutil.copytree(
        LAYOUT_SAMPLES / "lightning-folders" / LIGHTNING / "epoch=0-step=1.ckpt", tmp_path / "a" / "last.ckpt"
    )
    shutil.copytree(
        LAYOUT_SAMPLES / "accelerate-fsdp" / "checkpoints" / "checkpoint_0", tmp_path / "b" / "final"
    )
    shutil.copytree(LAYOUT_SAMPLES / "accelerate" / "checkpoints" / "checkpoint_0", tmp_path / "c" / "final")
    saves = [(run.path, [found.name for found in run.saves]) for run in group(tmp_path)]
    assert saves == [("a", ["last.ckpt"]), ("b", ["final"]), ("c", ["final"])]


def test_a_file_of_a_usual_name_beside_saves_is_one_by_itself(tmp_path: Path) -> None:
    save(tmp_path / "a" / "step-100", "dcp-2.15.0")
    shutil.copy(SAMPLES / "2.15.0" / "ts_plain" / "ck.pt", tmp_path / "a" / "optimizer.pt")
    (run,) = group(tmp_path)
    assert [found.name for found in run.saves] == ["optimizer.pt", "step-100"]


def test_a_save_that_lacks_a_part_of_its_layout_is_not_copied(tmp_path: Path) -> None:
    root = bring("accelerate-fsdp", tmp_path / "root")
    for path in (root / "checkpoints" / "checkpoint_1").glob("random_states_*.pkl"):
        path.unlink()
    target = DowngradeTarget(torch="2.14", python="3.11.7", system="linux")

    def copy(step: int) -> bool:
        source = str(root / "checkpoints" / f"checkpoint_{step}")
        return downgrade(source, target, progress=lambda *_: None).made

    # Both parts that DCP wrote, and all that lies beside them, are copied.
    assert copy(0)
    copied = root / "checkpoints-for-2.14" / "checkpoint_0"
    assert len([path for path in copied.rglob("*") if path.is_file()]) == 9
    with pytest.raises(NothingSuits):
        copy(1)


def test_a_save_without_a_step_that_is_written_again_and_again_is_placed_by_its_time(tmp_path: Path) -> None:
    root = bring("lightning", tmp_path / "project")
    folder = root / LIGHTNING
    (run,) = group(root)
    assert [save.name for save in run.saves][-1] == "last.ckpt"
    # A training that was started again has gone on since.
    os.utime(folder / "epoch=0-step=2.ckpt", (LONG_AGO + 60, LONG_AGO + 60))
    (run,) = group(root)
    assert [save.name for save in run.saves] == ["epoch=0-step=1.ckpt", "last.ckpt", "epoch=0-step=2.ckpt"]


def test_a_copy_of_a_save_without_a_step_stands_beside_it(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    save(runs / "a" / "step-100", "dcp-2.14.1")
    last = save(runs / "a" / "last.ckpt", "dcp-2.15.0")
    shutil.copy(LAYOUT_SAMPLES / "lightning-folders" / LIGHTNING / "epoch=0-step=1.ckpt" / "meta.pt", last)
    for path in (last, *last.iterdir()):
        os.utime(path, (LONG_AGO + 60, LONG_AGO + 60))
    downgrade(str(last), DowngradeTarget(torch="2.14"), progress=lambda *_: None)
    (run,) = group(runs)
    names = [save.name for save in run.saves]
    assert names == ["step-100", "../a-for-2.14/last.ckpt", "last.ckpt"]
    assert behind("last.ckpt", "../a-for-2.14/last.ckpt") == 0


@pytest.mark.parametrize("is_pointer", [False, True])
def test_a_save_that_is_named_by_itself_is_judged_by_what_lies_beside_it(
    tmp_path: Path,
    is_pointer: bool,  # noqa: FBT001
) -> None:
    step = save(tmp_path / "runs" / "step-200", "dcp-2.15.0")
    save(tmp_path / "runs" / "step-100", "dcp-2.15.0")
    if is_pointer:
        (step.parent / "latest").write_text("step-100")
        said = "latest names step-100, and its writer names a save once it is finished"
    else:
        (step.parent / "step-200-unfinished").touch()
        said = "step-200-unfinished is there until it is finished"
    settle(tmp_path)
    with pytest.raises(NothingSuits) as refused:
        downgrade(str(step), DowngradeTarget(torch="2.14"), progress=lambda *_: None)
    assert refused.value.message == f"{step} is incomplete: {said}"
    assert not (tmp_path / "runs-for-2.14").exists()
