"""Distributed checkpoints that older releases cannot read."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_save_is_found(found: Found) -> None:
    text = """
        import torch.distributed.checkpoint as dcp
        dcp.save(state, checkpoint_id="x")
    """
    assert found("checkpoint-save", "a.py", text) == ["3:1 warning"]


def test_a_save_says_it_for_its_writer(found: Found) -> None:
    text = """
        import torch.distributed.checkpoint as dcp
        dcp.save(state, storage_writer=dcp.FileSystemWriter("x"))
    """
    assert found("checkpoint-save", "a.py", text) == ["3:1 warning"]


def test_a_writer_alone_is_found(found: Found) -> None:
    text = """
        from torch.distributed.checkpoint.filesystem import FileSystemWriter as Writer
        give_to_trainer(Writer("x"))
    """
    assert found("checkpoint-save", "a.py", text) == ["3:17 warning"]


def test_every_way_to_import_is_followed(found: Found) -> None:
    text = """
        import torch.distributed as dist
        from torch import distributed
        from torch.distributed import (
            checkpoint as cp,
        )
        from torch.distributed.checkpoint import async_save
        dist.checkpoint.save(s)
        distributed.checkpoint.save(s)
        cp.save(s)
        async_save(s)
    """
    assert found("checkpoint-save", "a.py", text) == [
        "8:1 warning",
        "9:1 warning",
        "10:1 warning",
        "11:1 warning",
    ]


def test_a_load_reads_both(found: Found) -> None:
    text = """
        import torch.distributed.checkpoint as dcp
        dcp.load(state, checkpoint_id="x")
    """
    assert found("checkpoint-save", "a.py", text) == []


def test_safetensors_have_no_such_metadata(found: Found) -> None:
    text = """
        import torch.distributed.checkpoint as dcp
        writer = dcp.HuggingFaceStorageWriter("x")
        dcp.save(state, storage_writer=writer)
    """
    assert found("checkpoint-save", "a.py", text) == []


def test_a_function_of_ones_own_hides_the_import(found: Found) -> None:
    text = """
        from torch.distributed.checkpoint import save
        def outer():
            def save(x): ...
            save(1)
    """
    assert found("checkpoint-save", "a.py", text) == []
