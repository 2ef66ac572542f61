"""Process groups that get the rewritten backend."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_nccl_by_name_is_a_note(found: Found) -> None:
    text = """
        import torch.distributed as dist
        dist.init_process_group("nccl")
    """
    assert found("nccl-rewritten", "a.py", text) == ["3:1 note"]


def test_no_name_means_what_the_device_has(found: Found) -> None:
    text = """
        import torch
        torch.distributed.init_process_group()
    """
    assert found("nccl-rewritten", "a.py", text) == ["3:1 note"]


def test_gloo_is_not_nccl(found: Found) -> None:
    text = """
        import torch.distributed as dist
        dist.init_process_group("gloo")
    """
    assert found("nccl-rewritten", "a.py", text) == []


def test_a_backend_that_cannot_be_seen_is_left_alone(found: Found) -> None:
    text = """
        import torch.distributed as dist
        dist.init_process_group(config.backend)
        dist.init_process_group(**options)
    """
    assert found("nccl-rewritten", "a.py", text) == []


def test_a_function_of_another_package_is_another(found: Found) -> None:
    text = """
        from deepspeed import comm as dist
        dist.init_process_group("nccl")
    """
    assert found("nccl-rewritten", "a.py", text) == []


def test_aliases_and_values_are_followed(found: Found) -> None:
    text = """
        from torch.distributed import distributed_c10d as c10d
        start = c10d.init_process_group
        def main(backend="cpu:gloo,cuda:nccl"):
            start(backend=backend)
    """
    assert found("nccl-rewritten", "a.py", text) == ["5:5 note"]


def test_a_parameter_hides_the_import(found: Found) -> None:
    text = """
        from torch.distributed import init_process_group
        def main(init_process_group):
            init_process_group("nccl")
    """
    assert found("nccl-rewritten", "a.py", text) == []


def test_a_new_group_that_names_it_is_found(found: Found) -> None:
    text = """
        import torch.distributed as dist
        dist.new_group([0, 1], backend="nccl")
        dist.new_group([0, 1])
    """
    assert found("nccl-rewritten", "a.py", text) == ["3:1 note"]


def test_a_branch_for_older_releases_is_not_read(found: Found) -> None:
    text = """
        import torch
        import torch.distributed as dist
        if torch.__version__ < "2.3":
            dist.init_process_group("nccl")
    """
    assert found("nccl-rewritten", "a.py", text) == []
