"""The switch between the two backends."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_switching_back_is_a_warning(found: Found) -> None:
    text = """
        TORCH_DIST_USE_NCCL2=0 torchrun train.py
    """
    assert found("nccl-switch", "run.sh", text) == ["2:1 warning"]


def test_opting_in_is_a_note(found: Found) -> None:
    text = """
        ENV A=b TORCH_DIST_USE_NCCL2=1
    """
    assert found("nccl-switch", "Dockerfile", text) == ["2:9 note"]


def test_code_that_sets_it_is_found(found: Found) -> None:
    text = """
        import os as system
        system.environ.setdefault("TORCH_DIST_USE_NCCL2", "0")
    """
    assert found("nccl-switch", "a.py", text) == ["3:27 warning"]


def test_code_that_reads_it_is_not(found: Found) -> None:
    text = """
        import os
        on = os.environ.get("TORCH_DIST_USE_NCCL2", "0")
    """
    assert found("nccl-switch", "a.py", text) == []


def test_a_pod_is_read(found: Found) -> None:
    text = """
        env:
          - name: TORCH_DIST_USE_NCCL2
            value: "0"
    """
    assert found("nccl-switch", "job.yaml", text) == ["3:11 warning"]
