"""How a command of the profile failed, in one line."""

from __future__ import annotations

import pytest

from torchenv.actions.commands import failure
from torchenv.system.process import Command, Completed, End

COMMAND = Command(("python", "train.py"))
TOO_NEW = (
    ": a distributed checkpoint was saved by torch 2.15 or newer, and this torch cannot read it;"
    " see `torchenv checkpoints scan`"
)


@pytest.mark.parametrize(
    "said",
    [
        "CheckpointException ranks:dict_keys([0])\n…\nValueError: too many values to unpack (expected 5)",
        "AssertionError: metadata is None; global metadata read failed: too many values to unpack",
    ],
)
def test_what_dcp_says_of_a_newer_checkpoint_leads_to_the_checkpoints(said: str) -> None:
    found = failure(Completed(COMMAND, 1, "", said), 600)
    assert found is not None
    assert found.endswith(f"(code 1){TOO_NEW}")


def test_the_same_error_elsewhere_is_no_checkpoints() -> None:
    said = "ValueError: too many values to unpack (expected 2)"
    assert failure(Completed(COMMAND, 1, "", said), 600) == f"{said} (code 1)"
    assert failure(Completed(COMMAND, 0, "", said), 600) is None
    assert failure(Completed(COMMAND, 124, "", "", End.OUT_OF_TIME), 600) == "it was stopped after 600 s"
