"""The old backend by name."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_the_name_is_found(found: Found) -> None:
    text = """
        import torch.distributed as dist
        dist.init_process_group("nccl-legacy")
    """
    assert found("nccl-legacy", "a.py", text) == ["3:25 warning"]


def test_it_is_found_in_a_map_of_devices_and_a_variable(found: Found) -> None:
    text = """
        from torch import distributed as d
        BACKEND = "cpu:gloo,cuda:nccl-legacy"
    """
    assert found("nccl-legacy", "a.py", text) == ["3:11 warning"]


def test_prose_about_it_is_not_it(found: Found) -> None:
    text = """
        import torch
        print("the nccl-legacy backend is old")
    """
    assert found("nccl-legacy", "a.py", text) == []


def test_a_setting_in_yaml_is_found(found: Found) -> None:
    text = """\
        backend: nccl-legacy
    """
    assert found("nccl-legacy", "train.yaml", text) == ["1:10 warning"]


def test_code_without_torch_is_not_read(found: Found) -> None:
    text = """
        NAME = "nccl-legacy"
    """
    assert found("nccl-legacy", "a.py", text) == []
