"""Jagged tensors that older releases cannot read."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_saved_jagged_tensor_is_found(found: Found) -> None:
    text = """
        import torch
        x = torch.nested.nested_tensor(parts, layout=torch.jagged)
        torch.save({"x": x}, "x.pt")
    """
    assert found("nested-save", "a.py", text) == ["4:1 warning"]


def test_a_strided_one_can_be_read(found: Found) -> None:
    text = """
        import torch
        x = torch.nested.nested_tensor(parts)
        torch.save({"x": x}, "x.pt")
    """
    assert found("nested-save", "a.py", text) == []


def test_a_value_made_from_itself_comes_to_an_end(found: Found) -> None:
    text = """
        import torch
        x = torch.nested.nested_tensor(parts, layout=torch.jagged)
        x = {"x": x}
        torch.save(x, "x.pt")
    """
    assert found("nested-save", "a.py", text) == ["5:1 warning"]


def test_something_else_that_is_saved_is_right(found: Found) -> None:
    text = """
        import torch
        x = torch.nested.nested_tensor(parts, layout=torch.jagged)
        torch.save(model.state_dict(), "x.pt")
    """
    assert found("nested-save", "a.py", text) == []


def test_aliases_are_followed(found: Found) -> None:
    text = """
        from torch import save as write, nested
        pair = [1, nested.nested_tensor_from_jagged(v, o)]
        write(pair, "x.pt")
    """
    assert found("nested-save", "a.py", text) == ["4:1 warning"]
