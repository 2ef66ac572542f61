"""Process groups that do not say their device."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_device_by_the_global_rank_is_found(found: Found) -> None:
    text = """
        import torch, torch.distributed as dist
        dist.init_process_group("nccl", rank=rank)
        torch.cuda.set_device(rank)
    """
    assert found("one-device", "a.py", text) == ["3:1 note"]


def test_a_group_that_says_its_device_is_right(found: Found) -> None:
    text = """
        import torch, torch.distributed as dist
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        torch.cuda.set_device(rank)
    """
    assert found("one-device", "a.py", text) == []


def test_a_device_by_the_local_rank_is_what_the_release_takes(found: Found) -> None:
    text = """
        import os, torch, torch.distributed as dist
        number = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(number)
        dist.init_process_group("nccl")
    """
    assert found("one-device", "a.py", text) == []


def test_arguments_that_cannot_be_seen_may_say_it(found: Found) -> None:
    text = """
        import torch.distributed as dist
        dist.init_process_group("nccl", **more)
    """
    assert found("one-device", "a.py", text) == []


def test_gloo_has_no_device(found: Found) -> None:
    text = """
        import torch.distributed as dist
        dist.init_process_group("gloo")
    """
    assert found("one-device", "a.py", text) == []


def test_a_star_import_is_followed(found: Found) -> None:
    text = """
        from torch.distributed import *
        init_process_group(backend="nccl" if cuda else "gloo")
    """
    assert found("one-device", "a.py", text) == ["3:1 note"]
