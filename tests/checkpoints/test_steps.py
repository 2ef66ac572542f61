"""The name of a save tells its step, and which part of a path is the save."""

from __future__ import annotations

import pytest

from torchenv.checkpoints.steps import behind, is_copy, standing, step_of


@pytest.mark.parametrize(
    ("path", "save", "step"),
    [
        ("runs/a/step-100", "step-100", 100),
        ("runs/a/1000", "1000", 1000),
        ("runs/a/iter_0000100/model.pt", "iter_0000100", 100),
        ("runs/a/global_step300/mp_rank_00_model_states.pt", "global_step300", 300),
        ("runs/a/checkpoint-500/optimizer.pt", "checkpoint-500", 500),
        ("runs/a/checkpoint-500/pytorch_model_fsdp_0", "checkpoint-500", 500),
        ("runs/a/checkpoint-500/rng_state_0.pth", "checkpoint-500", 500),
        ("runs/a/epoch=3-step=100.ckpt", "epoch=3-step=100.ckpt", 100),
        ("runs/a/epoch_7.pt", "epoch_7.pt", 7),
        ("runs/a/model_1000.pt", "model_1000.pt", 1000),
        ("runs/a/100/model", "100", 100),
        ("runs/a/last.pt", "last.pt", None),
        ("runs/a/step-100-for-2.14", "step-100-for-2.14", 100),
        ("runs/a/100-for-2.14", "100-for-2.14", 100),
        ("runs/a/plain-for-2.14", "plain-for-2.14", None),
        ("runs/footstep/last.pt", "last.pt", None),
        ("runs/a/step200k", "step200k", 200_000),
        ("runs/a/step-2M.pt", "step-2M.pt", 2_000_000),
        ("runs/a/step-3model.pt", "step-3model.pt", 3),
    ],
)
def test_the_save_is_the_part_of_a_path_that_tells_a_step(path: str, save: str, step: int | None) -> None:
    parts = path.split("/")
    found = standing(parts)
    assert (parts[found.part], found.step) == (save, step)


def test_no_part_above_the_root_names_a_save() -> None:
    # The root is /data/checkpoint-7/runs: where someone put it says nothing of what is in it.
    parts = ["", "data", "checkpoint-7", "runs", "a", "last.pt"]
    assert standing(parts, first=3) == (5, None)


def test_steps_behind_are_told_only_where_both_names_tell_a_step() -> None:
    assert behind("step-300", "step-100") == 200
    assert behind("step-300", "step-300-for-2.14") == 0
    assert behind("step-300", "best.pt") is None
    assert behind("step-300", None) is None
    assert behind(None, None) is None


def test_a_copy_is_known_by_its_name() -> None:
    assert is_copy("step-100-for-2.14")
    assert not is_copy("step-100")
    assert step_of("step-100-for-2.14") == 100
