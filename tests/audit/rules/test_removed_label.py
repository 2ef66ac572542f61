"""Local version labels of backends that the release left."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_the_release_with_an_old_label_is_found(found: Found) -> None:
    text = """
        torch==2.15.0+cu126
    """
    assert found("removed-label", "requirements.txt", text) == ["2:1 error"]


def test_the_release_before_has_that_label(found: Found) -> None:
    text = """
        torch==2.14.1+cu126
    """
    assert found("removed-label", "requirements.txt", text) == []


def test_a_label_of_the_release_is_right(found: Found) -> None:
    text = """
        torch==2.15.0+cu132
    """
    assert found("removed-label", "requirements.txt", text) == []


def test_a_companion_is_judged_by_the_torch_beside_it(found: Found) -> None:
    text = """
        torch==2.15.0
        torchvision==0.29.1+cu126
    """
    assert found("removed-label", "requirements.txt", text) == ["3:1 error"]


def test_a_companion_of_an_older_torch_is_right(found: Found) -> None:
    text = """
        torch==2.14.1
        torchvision==0.29.1+cu126
    """
    assert found("removed-label", "requirements.txt", text) == []


def test_a_poetry_pin_is_the_same_pin(found: Found) -> None:
    text = """
        [tool.poetry.dependencies]
        torch = { version = "2.15.0+rocm7.2" }
    """
    assert found("removed-label", "pyproject.toml", text) == ["3:1 error"]
