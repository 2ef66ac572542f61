"""Two checkpoints are compared by names, shapes and dtypes, and a key scheme is recognised."""

from __future__ import annotations

import pytest
from tests.checkpoints.support import SAMPLES, MemoryTree

from torchenv.checkpoints.contents import Contents, TensorForm, compare, read_contents
from torchenv.errors import InputError, NothingSuits
from torchenv.storage.tree import LocalTree


def read(sample: str) -> Contents:
    return read_contents(LocalTree(SAMPLES / sample))


@pytest.mark.parametrize(
    ("sample", "name", "form"),
    [
        ("2.15.0/dcp_plain", "bf16", "bfloat16 [5]"),
        ("2.15.0/sh_fsdp2", "model.l1.weight", "float32 [6, 4]"),
        ("2.15.0/sh_nocoll", "s0", "float32 [6, 4]"),
        ("2.15.0/hf", "b", "bfloat16 [3]"),
        ("2.15.0/sh_hf", "s1", "float32 [6, 4]"),
        ("2.15.0/ts_plain", "t", "float32 [4, 3]"),
        ("2.15.0/ts_legacy", "t", "float32 [4, 3]"),
        ("2.15.0/ts_optim", "model.l1.weight", "float32 [6, 4]"),
        ("2.15.0/ts_fp8", "float8_e4m3fn", "float8_e4m3fn [2, 4]"),
    ],
)
def test_names_shapes_and_dtypes_are_read_of_every_form(sample: str, name: str, form: str) -> None:
    assert str(read(sample).tensors[name]) == form


def test_one_and_the_same_state_differs_in_nothing_whoever_wrote_it() -> None:
    diff = compare(read("2.14.1/sh_fsdp2"), read("2.15.0/sh_fsdp2"))
    assert (diff.only_before, diff.only_after, diff.changed, diff.schemes) == ((), (), (), ())
    assert diff.same > 27


def contents(*names: str, shape: tuple[int, ...] = (3,)) -> Contents:
    return Contents({name: TensorForm(shape, "float32") for name in names})


def test_a_wrapper_that_was_saved_along_is_named() -> None:
    diff = compare(contents("module.l1.weight", "module.l1.bias"), contents("l1.weight", "l1.bias"))
    assert diff.only_after == ("l1.bias", "l1.weight")
    assert diff.schemes == ("names of the first contain `module.`: a wrapper was saved with them",)


def test_an_optimizer_by_number_and_one_by_name_are_told_apart() -> None:
    by_number = contents("optim.state.0.exp_avg", "optim.state.1.exp_avg")
    by_name = contents("optim.state.l1.weight.exp_avg", "optim.state.l1.bias.exp_avg")
    (scheme,) = compare(by_name, by_number).schemes
    assert scheme.startswith("the optimizer of the second goes by number (`state.0`)")


def test_what_adam_of_older_releases_lacks_is_named() -> None:
    before, after = contents("w"), contents("w")
    after.objects = {"optim.param_groups.0.decoupled_weight_decay"}
    before.objects = {"optim.param_groups.0.lr"}
    assert compare(before, after).schemes == (
        "only one has decoupled_weight_decay, which Adam of torch 2.7 and newer asks for",
    )


def test_another_shape_is_told() -> None:
    diff = compare(contents("w"), contents("w", shape=(4, 2)))
    assert [(name, str(ours), str(theirs)) for name, ours, theirs in diff.changed] == [
        ("w", "float32 [3]", "float32 [4, 2]")
    ]
    assert diff.same == 0


def test_what_is_no_checkpoint_is_refused() -> None:
    with pytest.raises(InputError):
        read_contents(MemoryTree({"a": b"", "b": b""}))
    with pytest.raises(NothingSuits) as raised:
        read_contents(MemoryTree({"model.pt": b"PK\x03\x04"}))
    assert str(raised.value).startswith("runs/a cannot be read: the archive cannot be read: ")
