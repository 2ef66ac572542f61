"""cuRAND loaded by its name."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_load_is_found(found: Found) -> None:
    text = """
        import ctypes
        ctypes.CDLL("libcurand.so.10")
    """
    assert found("curand-load", "a.py", text) == ["3:1 warning"]


def test_an_alias_and_a_name_for_the_file_are_followed(found: Found) -> None:
    text = """
        from ctypes import CDLL as load
        NAME = "libcurand.so"
        load(NAME)
    """
    assert found("curand-load", "a.py", text) == ["4:1 warning"]


def test_a_path_says_where_it_is(found: Found) -> None:
    text = """
        import ctypes
        ctypes.CDLL("/opt/cuda/lib/libcurand.so.10")
    """
    assert found("curand-load", "a.py", text) == []
