"""One process group over several devices."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_model_on_two_devices_is_found(found: Found) -> None:
    text = """
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = DDP(net, device_ids=[0, 1])
    """
    assert found("several-devices", "a.py", text) == ["3:9 error"]


def test_a_model_on_one_device_is_right(found: Found) -> None:
    text = """
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = DDP(net, device_ids=[rank])
    """
    assert found("several-devices", "a.py", text) == []


def test_a_loop_over_devices_is_found(found: Found) -> None:
    text = """
        import torch.distributed as dist
        for n in range(4):
            dist.all_reduce(tensors.to(f"cuda:{n}"))
    """
    assert found("several-devices", "a.py", text) == ["4:5 error"]


def test_a_loop_over_steps_is_right(found: Found) -> None:
    text = """
        import torch, torch.distributed as dist
        device = torch.device("cuda", rank)
        for step in range(4):
            dist.all_reduce(tensor.to(device))
    """
    assert found("several-devices", "a.py", text) == []


def test_an_alias_of_the_collective_is_followed(found: Found) -> None:
    text = """
        import torch
        from torch.distributed import all_reduce as add_up
        for n in range(4):
            with torch.cuda.device(n):
                add_up(tensors[n])
    """
    assert found("several-devices", "a.py", text) == ["6:9 error"]
