"""Tests for the class of the old backend."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_test_is_found(found: Found) -> None:
    text = """
        import torch.distributed as dist
        ok = isinstance(backend, dist.ProcessGroupNCCL)
    """
    assert found("nccl-type", "a.py", text) == ["3:6 error"]


def test_an_alias_in_a_tuple_is_followed(found: Found) -> None:
    text = """
        from torch._C._distributed_c10d import ProcessGroupNCCL as Old
        ok = isinstance(backend, (Old, int))
    """
    assert found("nccl-type", "a.py", text) == ["3:6 error"]


def test_a_test_that_knows_both_is_right(found: Found) -> None:
    text = """
        import torch.distributed.distributed_c10d as c
        ok = isinstance(backend, (c.ProcessGroupNCCL, c.ProcessGroupNCCL2))
    """
    assert found("nccl-type", "a.py", text) == []


def test_its_options_are_still_the_options(found: Found) -> None:
    text = """
        import torch.distributed as dist
        options = dist.ProcessGroupNCCL.Options()
        ok = isinstance(options, dist.ProcessGroupNCCL.Options)
    """
    assert found("nccl-type", "a.py", text) == []
