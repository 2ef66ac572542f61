"""Allow-lists too short for old jagged tensors."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_the_advice_of_two_names_is_too_short(found: Found) -> None:
    text = """
        import torch
        from torch.nested._internal.nested_tensor import NestedTensor, _rebuild_njt
        torch.serialization.add_safe_globals([NestedTensor, _rebuild_njt])
    """
    assert found("nested-globals", "a.py", text) == ["4:1 warning"]


def test_three_names_are_right(found: Found) -> None:
    text = """
        import torch
        from torch._dynamo.decorators import _DimRange
        from torch.nested._internal.nested_tensor import NestedTensor, _rebuild_njt
        torch.serialization.add_safe_globals([NestedTensor, _rebuild_njt, _DimRange])
    """
    assert found("nested-globals", "a.py", text) == []


def test_a_list_for_strided_tensors_is_another(found: Found) -> None:
    text = """
        import torch
        torch.serialization.add_safe_globals([torch._utils._rebuild_nested_tensor])
        _rebuild_njt = None
    """
    assert found("nested-globals", "a.py", text) == []


def test_aliases_are_followed(found: Found) -> None:
    text = """
        from torch.serialization import safe_globals as allow
        import torch.nested._internal.nested_tensor as nt
        with allow([nt.NestedTensor, nt._rebuild_njt]):
            pass
    """
    assert found("nested-globals", "a.py", text) == ["4:6 warning"]
