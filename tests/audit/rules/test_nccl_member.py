"""Members that only the old backend has."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_member_of_a_backend_is_found(found: Found) -> None:
    text = """
        group._get_backend(device)._set_enable_nan_check(True)
    """
    assert found("nccl-member", "a.py", text) == ["2:1 error"]


def test_a_name_for_the_backend_is_followed(found: Found) -> None:
    text = """
        backend = group._get_backend(device)
        again = backend
        again.comm_split_count()
    """
    assert found("nccl-member", "a.py", text) == ["4:1 error"]


def test_the_same_name_elsewhere_is_not(found: Found) -> None:
    text = """
        backend = group._get_backend(device)
        user.uid
    """
    assert found("nccl-member", "a.py", text) == []


def test_a_member_that_both_have_is_right(found: Found) -> None:
    text = """
        group._get_backend(device).options
    """
    assert found("nccl-member", "a.py", text) == []


def test_a_member_behind_the_test_for_its_class_is_another_rules(found: Found) -> None:
    text = """
        from torch.distributed import ProcessGroupNCCL
        backend = group._get_backend(device)
        if isinstance(backend, ProcessGroupNCCL):
            backend.uid
    """
    assert found("nccl-member", "a.py", text) == []
