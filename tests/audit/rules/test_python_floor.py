"""Interpreters that the release has no wheels for."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_range_that_only_dropped_pythons_meet_is_an_error(found: Found) -> None:
    text = """
        [project]
        requires-python = "<3.11"
        dependencies = ["torch>=2.1"]
    """
    assert found("python-floor", "pyproject.toml", text) == ["3:1 error"]


def test_a_range_that_still_admits_a_dropped_python_is_a_warning(found: Found) -> None:
    text = """
        [project]
        requires-python = ">=3.10"
        dependencies = ["torch"]
    """
    assert found("python-floor", "pyproject.toml", text) == ["3:1 warning"]


def test_a_floor_at_a_late_patch_of_a_dropped_python_counts(found: Found) -> None:
    text = """
        [project]
        requires-python = ">=3.10.4"
        dependencies = ["torch"]
    """
    assert found("python-floor", "pyproject.toml", text) == ["3:1 warning"]


def test_a_project_without_torch_keeps_its_python(found: Found) -> None:
    text = """
        [project]
        requires-python = ">=3.8"
        dependencies = ["numpy"]
    """
    assert found("python-floor", "pyproject.toml", text) == []


def test_a_raised_floor_is_right(found: Found) -> None:
    text = """
        [project]
        requires-python = ">=3.11"
        dependencies = ["torch"]
    """
    assert found("python-floor", "pyproject.toml", text) == []


def test_a_caret_of_poetry_is_a_range(found: Found) -> None:
    text = """
        [tool.poetry.dependencies]
        python = "^3.10"
        torch = "^2.8"
    """
    assert found("python-floor", "pyproject.toml", text) == ["3:1 warning"]


def test_setup_py_is_read_through_the_name_it_imports(found: Found) -> None:
    text = """
        from setuptools import setup as make
        make(python_requires=">=3.9", install_requires=["torch>=2"])
    """
    assert found("python-floor", "setup.py", text) == ["3:22 warning"]


def test_setup_cfg_is_read(found: Found) -> None:
    text = """
        [options]
        python_requires = >=3.9
        install_requires =
            torch
    """
    assert found("python-floor", "setup.cfg", text) == ["3:1 warning"]


def test_a_pin_of_the_interpreter_is_an_error(found: Found) -> None:
    text = """\
        3.10.14
    """
    assert found("python-floor", ".python-version", text) == ["1:1 error"]


def test_a_pin_of_a_newer_interpreter_is_right(found: Found) -> None:
    text = """\
        3.11.9
    """
    assert found("python-floor", ".python-version", text) == []


def test_a_matrix_names_each_interpreter(found: Found) -> None:
    text = """
        jobs:
          test:
            strategy:
              matrix:
                python-version: ["3.10", "3.11"]
    """
    assert found("python-floor", ".github/workflows/test.yml", text) == ["6:26 error"]


def test_an_unquoted_3_10_is_not_3_1(found: Found) -> None:
    text = """
        steps:
          - with:
              python-version: 3.10
    """
    assert found("python-floor", ".github/workflows/test.yml", text) == ["4:23 error"]


def test_an_image_of_gitlab_is_read(found: Found) -> None:
    text = """
        test:
          image: python:3.10-slim
    """
    assert found("python-floor", ".gitlab-ci.yml", text) == ["3:10 error"]


def test_a_base_image_is_read(found: Found) -> None:
    text = """
        FROM --platform=linux/amd64 docker.io/library/python:3.10-slim AS build
    """
    assert found("python-floor", "Dockerfile", text) == ["2:29 error"]


def test_an_image_of_3_1x_is_told_from_3_1(found: Found) -> None:
    text = """
        FROM python:3.11
    """
    assert found("python-floor", "Dockerfile", text) == []


def test_a_conda_environment_is_read(found: Found) -> None:
    text = """
        name: mine
        dependencies:
          - python=3.10
          - pytorch
    """
    assert found("python-floor", "environment.yml", text) == ["4:5 error"]


def test_a_project_that_keeps_to_an_older_torch_keeps_its_python(found: Found) -> None:
    text = """
        [project]
        requires-python = ">=3.10"
        dependencies = ["torch>=2.1,<2.15"]
    """
    assert found("python-floor", "pyproject.toml", text) == []


def test_an_image_with_an_older_torch_keeps_its_python(found: Found) -> None:
    text = """
        FROM python:3.10
        RUN pip install torch==2.14.1
    """
    assert found("python-floor", "Dockerfile", text) == []
    assert found("python-floor", "Dockerfile", text.replace("==2.14.1", ">=2.14.1")) == ["2:6 error"]
