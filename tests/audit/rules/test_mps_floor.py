"""Apple's GPU on a macOS that the release left."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_an_old_runner_is_found(found: Found) -> None:
    text = """
        jobs:
          test:
            runs-on: macos-14
    """
    assert found("mps-floor", ".github/workflows/test.yml", text) == ["4:14 warning"]


def test_a_newer_runner_is_right(found: Found) -> None:
    text = """
        jobs:
          test:
            runs-on: macos-15-xlarge
    """
    assert found("mps-floor", ".github/workflows/test.yml", text) == []


def test_a_device_that_is_taken_for_granted_is_a_note(found: Found) -> None:
    text = """
        import torch
        device = torch.device("mps")
    """
    assert found("mps-floor", "train.py", text) == ["3:10 note"]


def test_a_device_that_is_asked_for_is_right(found: Found) -> None:
    text = """
        import torch
        device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
        model = torch.zeros(2, device="mps") if torch.backends.mps.is_available() else None
    """
    assert found("mps-floor", "train.py", text) == []


def test_an_alias_of_the_device_class_is_followed(found: Found) -> None:
    text = """
        from torch import device as D
        x.to(D("mps"))
    """
    assert found("mps-floor", "train.py", text) == ["3:6 note"]


def test_the_word_alone_is_nothing(found: Found) -> None:
    text = """
        import torch
        names = ["mps", "cuda"]
    """
    assert found("mps-floor", "train.py", text) == []
