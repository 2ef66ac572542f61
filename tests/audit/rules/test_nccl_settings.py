"""Settings of the old backend."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_an_exported_setting_is_a_note(found: Found) -> None:
    text = """
        export TORCH_NCCL_BLOCKING_WAIT=1
    """
    assert found("nccl-settings", "run.sh", text) == ["2:8 note"]


def test_a_setting_of_nccl_itself_is_not(found: Found) -> None:
    text = """
        export NCCL_DEBUG=INFO  # not TORCH_NCCL_BLOCKING_WAIT
    """
    assert found("nccl-settings", "run.sh", text) == []


def test_an_update_of_the_environment_is_found(found: Found) -> None:
    text = """
        from os import environ
        environ.update({"TORCH_NCCL_BLOCKING_WAIT": "1"}, A="b")
    """
    assert found("nccl-settings", "a.py", text) == ["3:17 note"]


def test_a_dictionary_of_ones_own_is_not(found: Found) -> None:
    text = """
        environ = {}
        environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    """
    assert found("nccl-settings", "a.py", text) == []
