"""A torchaudio that does not import beside the release."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_both_pinned_is_an_error(found: Found) -> None:
    text = """
        torch==2.15.0
        torchaudio==2.11.0
    """
    assert found("companion", "requirements.txt", text) == ["3:1 error"]


def test_a_torch_that_may_move_is_a_warning(found: Found) -> None:
    text = """
        torch
        torchaudio==2.11.0
    """
    assert found("companion", "requirements.txt", text) == ["3:1 warning"]


def test_the_older_torch_takes_it(found: Found) -> None:
    text = """
        torch==2.14.1
        torchaudio==2.11.0
    """
    assert found("companion", "requirements.txt", text) == []


def test_the_mended_release_is_right(found: Found) -> None:
    text = """
        torch==2.15.0
        torchaudio==2.11.1
    """
    assert found("companion", "requirements.txt", text) == []


def test_a_lock_is_read(found: Found) -> None:
    text = """
        version = 1
        [[package]]
        name = "torch"
        version = "2.15.0"
        [[package]]
        name = "torchaudio"
        version = "2.11.0"
    """
    assert found("companion", "uv.lock", text) == ["7:1 error"]


def test_a_name_in_capitals_is_the_same_name(found: Found) -> None:
    text = """
        Torch>=2.15
        # the needle is the lower-case name: torchaudio
        TorchAudio===2.11.0
    """
    assert found("companion", "requirements.txt", text) == ["4:1 error"]
