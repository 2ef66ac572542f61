"""Builds that link against cuRAND."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_library_of_an_extension_is_found(found: Found) -> None:
    text = """
        from torch.utils.cpp_extension import CUDAExtension as Ext
        Ext("mine", ["a.cu"], libraries=["cublas", "curand"])
    """
    assert found("curand-build", "setup.py", text) == ["3:44 warning"]


def test_a_flag_is_found(found: Found) -> None:
    text = """
        FLAGS = ["-lcurand"]
    """
    assert found("curand-build", "build.py", text) == ["2:10 warning"]


def test_a_library_of_another_thing_is_not(found: Found) -> None:
    text = """
        from setuptools import Extension
        names = ["curand"]
        Extension("mine", ["a.cpp"], libraries=["cublas"])
    """
    assert found("curand-build", "setup.py", text) == []


def test_a_target_is_found(found: Found) -> None:
    text = """
        target_link_libraries(mine PRIVATE CUDA::cublas
            CUDA::curand)  # CUDA::curand
    """
    assert found("curand-build", "CMakeLists.txt", text) == ["3:5 warning"]


def test_a_static_library_comes_along(found: Found) -> None:
    text = """
        target_link_libraries(mine PRIVATE CUDA::curand_static)
        set(HEADERS curand.h curand)
    """
    assert found("curand-build", "CMakeLists.txt", text) == []


def test_a_makefile_is_read(found: Found) -> None:
    text = """
        LIBS = -lcublas -lcurand
    """
    assert found("curand-build", "Makefile", text) == ["2:17 warning"]


def test_a_call_of_the_host_library_is_found(found: Found) -> None:
    text = """
        #include <curand.h>
        void start() { curandCreateGenerator(&g, CURAND_RNG_PSEUDO_DEFAULT); }
    """
    assert found("curand-build", "noise.cu", text) == ["3:16 warning"]


def test_device_code_needs_no_library(found: Found) -> None:
    text = """
        #include <curand_kernel.h>
        __global__ void k() { curand_init(1, 2, 3, &s); curand_uniform(&s); }
    """
    assert found("curand-build", "noise.cu", text) == []
