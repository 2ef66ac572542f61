"""Python 3.11.0 to 3.11.3 take members of an Enum by `getattr`: told apart from every other use of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.checkpoints import inspect
from torchenv.checkpoints.downgrade import downgrade
from torchenv.checkpoints.formats.dcp import features, read_facts, read_listing
from torchenv.storage.tree import LocalTree

# Written by torch 2.15.0 on Python 3.11.2.
SAVED = Path(__file__).parents[2] / "data" / "checkpoints" / "python-3.11.2"
DATA = (SAVED / ".metadata").read_bytes()


def foreign(data: bytes) -> list[str]:
    """Name what no release writes."""
    return list(map(str, features(read_facts(data))[1]))


def test_what_python_3_11_2_wrote_is_read_like_any_other() -> None:
    checkpoint = inspect(LocalTree(SAVED))
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.foreign, checkpoint.problems) == ("complete", (), ())
    assert checkpoint.reader.torch.oldest == "2.15"
    assert checkpoint.reader.certainty == "confirmed"


def test_its_copy_for_2_14_is_the_same_but_for_the_strides() -> None:
    copy = downgrade(DATA, "2.14").data
    assert foreign(copy) == []
    assert "dcp-strides" not in features(read_facts(copy))[0]
    assert read_listing(copy)[1] == read_listing(DATA)[1]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        # Another attribute, then another class.
        (b"TORCH_CONTIGUOUS_FORMAT", b"__subclasses__"),
        (b"_MEM_FORMAT_ENCODING", b"TensorStorageMetadat"),
    ],
)
def test_getattr_for_anything_else_is_foreign(written: bytes, instead: bytes) -> None:
    assert written in DATA
    changed = DATA.replace(written, instead[: len(written)].ljust(len(written), b"_"), 1)
    assert len(changed) == len(DATA)
    assert "builtins.getattr" in foreign(changed)


@pytest.mark.parametrize("call", [b"R", b"\x81"])
def test_one_other_call_among_members_is_enough(call: bytes) -> None:
    # getattr(os, "system") pushed and dropped in front of the real metadata.
    extra = b"cbuiltins\ngetattr\n(cos\npath\nX\x06\x00\x00\x00systemt" + call + b"0"
    start = DATA.index(b"\x95") + 9
    changed = DATA[:2] + extra + DATA[start:]
    assert {"builtins.getattr", "os.path"} <= set(foreign(changed))
