"""torch imported again in the same process."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_reload_is_found(found: Found) -> None:
    text = """
        import importlib, torch
        importlib.reload(torch)
    """
    assert found("torch-reload", "a.py", text) == ["3:1 error"]


def test_an_alias_is_followed(found: Found) -> None:
    text = """
        from importlib import reload as again
        import torch as t
        again(t)
    """
    assert found("torch-reload", "a.py", text) == ["4:1 error"]


def test_another_module_may_be_reloaded(found: Found) -> None:
    text = """
        import importlib, torch, mine
        importlib.reload(mine)
        importlib.reload(torch.utils)
    """
    assert found("torch-reload", "a.py", text) == []
