"""Nested tensors under weights_only."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_load_beside_nested_tensors_is_found(found: Found) -> None:
    text = """
        import torch
        x = torch.nested.nested_tensor(parts)
        y = torch.load("x.pt")
    """
    assert found("nested-load", "a.py", text) == ["4:5 warning"]


def test_an_alias_of_both_is_followed(found: Found) -> None:
    text = """
        from torch.nested import as_nested_tensor as nest
        from torch.serialization import load as read
        read("x.pt", weights_only=True), nest(parts)
    """
    assert found("nested-load", "a.py", text) == ["4:1 warning"]


def test_a_full_unpickling_takes_them(found: Found) -> None:
    text = """
        import torch
        x = torch.nested.nested_tensor(parts)
        y = torch.load("x.pt", weights_only=False)
    """
    assert found("nested-load", "a.py", text) == []


def test_an_allow_list_is_an_answer(found: Found) -> None:
    text = """
        import torch
        x = torch.nested.nested_tensor(parts)
        with torch.serialization.safe_globals([torch._utils._rebuild_nested_tensor]):
            y = torch.load("x.pt")
    """
    assert found("nested-load", "a.py", text) == []


def test_a_test_for_nested_tensors_makes_none(found: Found) -> None:
    text = """
        import torch
        print(x.is_nested, torch.nested.to_padded_tensor, "nested_tensor")
        y = torch.load("x.pt")
    """
    assert found("nested-load", "a.py", text) == []
