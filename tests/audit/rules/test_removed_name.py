"""Names that the release removed."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_removed_function_is_found(found: Found) -> None:
    text = """
        import torch.distributed as dist
        dist.distributed_c10d._is_safe_to_split()
    """
    assert found("removed-name", "a.py", text) == ["3:1 error"]


def test_an_import_under_another_name_is_found_at_both_places(found: Found) -> None:
    text = """
        from torch.nested import _rebuild_njt as rebuild
        rebuild
    """
    assert found("removed-name", "a.py", text) == ["2:26 error", "3:1 error"]


def test_an_import_that_may_fail_is_a_question(found: Found) -> None:
    text = """
        try:
            from torch.nested import _rebuild_njt
        except ImportError:
            _rebuild_njt = None
    """
    assert found("removed-name", "a.py", text) == []


def test_the_name_in_its_own_module_stays(found: Found) -> None:
    text = """
        from torch.nested._internal.nested_tensor import _rebuild_njt
    """
    assert found("removed-name", "a.py", text) == []


def test_a_method_of_the_same_name_is_another(found: Found) -> None:
    text = """
        class Mine:
            def _is_safe_to_split(self):
                return self._is_safe_to_split()
    """
    assert found("removed-name", "a.py", text) == []


def test_a_member_of_a_backend_is_found(found: Found) -> None:
    text = """
        import torch.distributed as dist
        backend = dist.group.WORLD._get_backend(device)
        print(backend.supports_time_estimate)
    """
    assert found("removed-name", "a.py", text) == ["4:7 error"]


def test_a_member_of_something_else_is_not(found: Found) -> None:
    text = """
        import torch.distributed as dist
        print(my_backend.supports_time_estimate)
    """
    assert found("removed-name", "a.py", text) == []


def test_a_member_that_is_asked_for_is_not(found: Found) -> None:
    text = """
        backend = group._get_backend(device)
        if hasattr(backend, "supports_time_estimate"):
            print(backend.supports_time_estimate)
    """
    assert found("removed-name", "a.py", text) == []


def test_the_name_of_an_older_torch_in_the_place_of_a_newer_one_stays(found: Found) -> None:
    text = """
        try:
            from torch.nested import something_newer
        except ImportError:
            from torch.nested import _rebuild_njt
    """
    assert found("removed-name", "a.py", text) == []


def test_a_name_in_the_place_of_another_project_is_found(found: Found) -> None:
    text = """
        try:
            import tensorflow
        except ImportError:
            from torch.nested import _rebuild_njt
    """
    assert found("removed-name", "a.py", text) == ["5:30 error"]
