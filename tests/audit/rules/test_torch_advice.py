"""Commands for a wheel that does not exist, as torch's own warning prints them."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_the_advice_that_torch_prints_is_found_in_a_script(found: Found) -> None:
    text = """
        pip install torch==2.15.0 --index-url https://download.pytorch.org/whl/cu126
    """
    assert found("torch-advice", "install.sh", text) == ["2:39 error"]


def test_it_is_found_in_a_copied_warning(found: Found) -> None:
    text = """
          For CUDA 12.6 use pip install torch==2.15.0 --index-url https://download.pytorch.org/whl/cu126
    """
    assert found("torch-advice", "NOTES.txt", text) == ["2:57 error"]


def test_it_is_found_under_another_spelling_of_the_pin(found: Found) -> None:
    text = """
        uv add 'torch>=2.15' --index https://download.pytorch.org/whl/cu130
    """
    assert found("torch-advice", "install.sh", text) == ["2:30 error"]


def test_the_release_before_is_there(found: Found) -> None:
    text = """
        pip install torch==2.14.1 --index-url https://download.pytorch.org/whl/cu126
    """
    assert found("torch-advice", "install.sh", text) == []


def test_the_release_on_its_own_index_is_right(found: Found) -> None:
    text = """
        pip install torch==2.15.0 --index-url https://download.pytorch.org/whl/cu134
    """
    assert found("torch-advice", "install.sh", text) == []
