"""Every reader takes time and memory in proportion to the file, whatever is in it."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints.support import MemoryTree, metadata

from torchenv.checkpoints import inspect
from torchenv.checkpoints.formats.coverage import covers
from torchenv.checkpoints.formats.inert import Map, Memo
from torchenv.checkpoints.formats.pickles import walk
from torchenv.checkpoints.formats.records import PROPERTIES, Piece, Records, States
from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.values import Checkpoint
from torchenv.storage.local import LocalPlace

MIB = 1 << 20


def count_calls(work: Callable[[], Any]) -> int:
    """Return how many functions are called, Python's and C's: a measure of time without a clock."""
    calls = 0

    def note(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def seen(files: dict[str, bytes]) -> Checkpoint:
    checkpoint = inspect(MemoryTree(files))
    assert checkpoint is not None
    return checkpoint


def one_tensor(shape: tuple[int, ...], pieces: list[Any]) -> list[dict[str, Any]]:
    return [{"name": "w", "shape": shape, "pieces": pieces}]


def sharing(count: int) -> bytes:
    pieces = [((n,), (1,)) for n in range(count)]
    tensors = [
        {"name": f"w{n}", "shape": (count,), "pieces": pieces[:1] if n else pieces} for n in range(count)
    ]
    return metadata(tensors, shared=True)


def test_tensors_that_share_a_list_of_chunks_do_not_multiply() -> None:
    data = sharing(600)
    tracemalloc.start()
    try:
        checkpoint = seen({".metadata": data})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [problem.code for problem in checkpoint.problems] == ["pickle-too-large"]
    assert peak <= 20 * len(data) + 64 * MIB


def test_tensors_that_share_a_few_chunks_are_read() -> None:
    checkpoint = seen({".metadata": sharing(3)})

    assert checkpoint.tensors == 3


def test_a_tensor_has_no_more_dimensions_than_torch_makes() -> None:
    many = (1,) * 65

    checkpoint = seen({".metadata": metadata(one_tensor(many, [((0,) * 65, many)]))})

    assert [problem.code for problem in checkpoint.problems] == ["not-metadata"]


def test_boxes_left_open_are_given_up_after_work_in_proportion_to_the_pieces() -> None:
    def diagonal(count: int) -> list[Piece]:
        # Each leaves some more of the space open, up to the most boxes there may be.
        return [Piece((n % 100, n), (1, 1)) for n in range(count)]

    few = count_calls(lambda: covers((100_000, 100_000), diagonal(2_000)))
    many = count_calls(lambda: covers((100_000, 100_000), diagonal(4_000)))

    assert many <= 2.2 * few
    assert covers((100_000, 100_000), diagonal(4_000)) is None


def test_a_large_grid_of_chunks_is_still_judged() -> None:
    grid = [
        Piece((16 * a, 16 * b, 16 * c), (16, 16, 16)) for a in range(12) for b in range(12) for c in range(12)
    ]

    assert covers((192, 192, 192), grid) is True
    assert covers((192, 192, 192), grid[:-1]) is False


def test_names_that_are_memoised_again_and_again_write_no_longer_expressions() -> None:
    def learn(count: int) -> int:
        memo = Memo(lambda index: index)
        records = Records(b".", States(), keep=True)

        def advance() -> None:
            for _ in range(count):
                memo.values.append("offsets")
                records.advance(memo, [], [], 0)

        return count_calls(advance)

    assert learn(4_000) <= 2.2 * learn(2_000)


def test_stretches_of_a_memo_that_lie_behind_are_not_gone_through_again() -> None:
    memo = Memo(lambda index: index)
    for _ in range(3):
        memo.values += ["a", "b"]
        memo.pass_over(10)
    memo.values.append("c")

    assert list(memo.at_hand(25)) == [(25, "b"), (36, "c")]
    assert [index for index, _ in memo.at_hand(0)] == [0, 1, 12, 13, 24, 25, 36]


def test_a_state_that_is_used_again_far_behind_is_not_taken_for_one_written_there() -> None:
    # TensorProperties().__setstate__ of one tuple, twice: the second fetches it from the memo.
    made = b"c" + PROPERTIES.module.encode() + b"\nTensorProperties\nq\x00)\x81"
    data = b"\x80\x02" + made + b"(NNNNNNtq\x01b" + b"h\x00)\x81h\x01b."
    states = States()

    walk(data, watched={PROPERTIES: states.note})

    assert (len(states.six), states.others) == (0, 2)


def test_the_last_value_of_a_key_counts_in_a_dict_of_a_pickle() -> None:
    assert Map(["a", 1, "b", 2, "a", 3]).get("a") == 3
    assert Map(["a", 1]).get("c") is None


@pytest.mark.parametrize("name", [b"os", b"x" * 1_001])
def test_a_name_that_is_imported_has_a_length_that_a_name_may_have(name: bytes) -> None:
    checkpoint = seen({"a.pkl": b"\x80\x02c" + name + b"\nsystem\n."})

    assert (checkpoint.state == "corrupt") is (len(name) > 1_000)


def test_a_size_that_is_called_with_a_number_is_damage() -> None:
    good = metadata(one_tensor((3,), [((0,), (3,))]))
    bad = good.replace(b"K\x03\x85\x94\x85\x94R", b"K\x03\x94N0\x94R", 1)
    assert bad != good

    checkpoint = seen({".metadata": bad})

    assert checkpoint.state == "corrupt"
    assert [problem.code for problem in checkpoint.problems] == ["not-metadata"]


def test_a_large_pickle_of_another_program_is_read_in_part() -> None:
    data = b"\x80\x02(" + b"NNNNNNNN" * (3 * MIB) + b"t."
    tracemalloc.start()
    try:
        checkpoint = seen({"a.pkl": data})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    message = f"a pickle of {len(data)} bytes that torch.save did not write"
    assert [(problem.code, problem.message) for problem in checkpoint.problems] == [("not-torch", message)]
    assert peak <= 12 * len(data)


def test_a_reader_that_fails_on_one_file_leaves_the_others(tmp_path: Path) -> None:
    class Failing(LocalPlace):
        def tree(self, address: str) -> Any:
            if address.endswith("bad.pt"):
                raise TypeError("object of type 'int' has no len()")
            return super().tree(address)

    for name in ("bad.pt", "good.pt"):
        (tmp_path / name).write_bytes(b"\x80\x02}.")

    index = scan([Failing(tmp_path)], None, lambda _: None)

    problems = {found.name: found.problems[0] for _, _, _, found in index}
    assert problems["bad.pt"] == ["reader-failed", "torchenv failed to read it (TypeError)"]
    assert problems["good.pt"][0] == "not-torch"
