"""Whatever the bytes of a checkpoint become, they end in a verdict."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.checkpoints.support import SAMPLES, MemoryTree, files_of

from torchenv.checkpoints import inspect
from torchenv.checkpoints.downgrade import downgrade
from torchenv.checkpoints.formats.inert import Damaged
from torchenv.errors import NothingSuits

CORPUS = [
    "dcp_plain", "sh_nocoll", "dcp_zstd", "hf", "sh_hf", "jit", "ts_optim", "ts_legacy",
    "ts_proto5", "ts_numpy",
]  # fmt: skip

edits = st.lists(
    st.tuples(st.integers(0, 1 << 20), st.binary(max_size=6), st.integers(0, 6)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=400, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(kind=st.sampled_from(CORPUS), which=st.integers(0, 9), edits=edits)
def test_a_damaged_checkpoint_ends_in_a_verdict(
    kind: str, which: int, edits: list[tuple[int, bytes, int]]
) -> None:
    files = files_of(SAMPLES / "2.15.0" / kind)
    name = sorted(files)[which % len(files)]
    files[name] = changed(files[name], edits)

    checkpoint = inspect(MemoryTree(files))

    assert checkpoint is not None
    assert checkpoint.state in {"complete", "incomplete", "corrupt"}
    if checkpoint.state != "complete":
        assert checkpoint.problems
    assert all(note.message.isprintable() for note in checkpoint.problems)


@settings(max_examples=200, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(edits=edits)
def test_damaged_metadata_is_downgraded_right_or_refused(
    edits: list[tuple[int, bytes, int]],
) -> None:
    data = changed((SAMPLES / "2.15.0" / "dcp_async" / ".metadata").read_bytes(), edits)

    try:
        result = downgrade(data, "2.14")
    except (Damaged, NothingSuits):
        return
    assert len(result.data) == len(data) + result.strides


def changed(data: bytes, edits: list[tuple[int, bytes, int]]) -> bytes:
    for at, put, cut in edits:
        place = at % (len(data) + 1)
        data = data[:place] + put + data[place + cut :]
    return data
