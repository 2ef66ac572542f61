"""Headers that the release removed."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_an_include_is_found(found: Found) -> None:
    text = """
        #include <ATen/native/mps/operations/BinaryKernel.h>
    """
    assert found("removed-header", "kernel.cpp", text) == ["2:11 error"]


def test_a_spaced_include_in_quotes_is_the_same(found: Found) -> None:
    text = """
        #  include "torch/csrc/profiler/cupti/monitor_native.h"
    """
    assert found("removed-header", "kernel.cpp", text) == ["2:13 error"]


def test_a_commented_include_is_not_compiled(found: Found) -> None:
    text = """
        // #include <ATen/native/mps/operations/BinaryKernel.h>
        /*
        #include <ATen/native/mps/operations/BinaryKernel.h>
        */
    """
    assert found("removed-header", "kernel.cpp", text) == []


def test_a_header_of_ones_own_is_another(found: Found) -> None:
    text = """
        #include "mine/BinaryKernel.h"
    """
    assert found("removed-header", "kernel.cpp", text) == []
