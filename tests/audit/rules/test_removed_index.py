"""Index addresses of backends that the release left."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_an_unpinned_torch_on_an_old_index_is_found(found: Found) -> None:
    text = """
        RUN pip install torch torchvision --index-url https://download.pytorch.org/whl/cu126
    """
    assert found("removed-index", "Dockerfile", text) == ["2:47 warning"]


def test_a_pin_below_the_release_is_at_home_there(found: Found) -> None:
    text = """
        RUN pip install torch==2.14.1 --index-url https://download.pytorch.org/whl/cu126
    """
    assert found("removed-index", "Dockerfile", text) == []


def test_an_upper_bound_is_a_pin_too(found: Found) -> None:
    text = """
        --extra-index-url https://download.pytorch.org/whl/cu126
        torch<2.15
    """
    assert found("removed-index", "requirements.txt", text) == []


def test_an_index_of_the_release_is_right(found: Found) -> None:
    text = """
        pip install torch --index-url https://download.pytorch.org/whl/cu132
    """
    assert found("removed-index", "install.sh", text) == []


def test_a_nightly_index_is_another_one(found: Found) -> None:
    text = """
        pip install --pre torch --index-url https://download.pytorch.org/whl/nightly/cu126
    """
    assert found("removed-index", "install.sh", text) == []


def test_the_index_of_another_project_is_not_torchs(found: Found) -> None:
    text = """
        pip install torch flashinfer --extra-index-url https://flashinfer.example/whl/cu126/torch2.6
    """
    assert found("removed-index", "install.sh", text) == []


def test_a_commented_command_is_not_run(found: Found) -> None:
    text = """
        # pip install torch --index-url https://download.pytorch.org/whl/cu126
    """
    assert found("removed-index", "install.sh", text) == []


def test_a_command_is_read_over_its_continued_lines(found: Found) -> None:
    text = """
        python -m pip install \\
            torch \\
            --index-url="https://download.pytorch.org/whl/rocm7.2"
    """
    assert found("removed-index", "install.sh", text) == ["4:5 warning"]


def test_a_mirror_of_the_same_layout_is_read(found: Found) -> None:
    text = """
        uv pip install torch --default-index https://mirror.example/pytorch-wheels/cu130
    """
    assert found("removed-index", "install.sh", text) == ["2:38 warning"]


def test_the_backend_option_of_uv_is_read(found: Found) -> None:
    text = """
        uv pip install torch --torch-backend cu126
    """
    assert found("removed-index", "install.sh", text) == ["2:38 warning"]


def test_an_index_in_a_variable_is_read(found: Found) -> None:
    text = """
        ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cu126
        RUN pip install torch
    """
    assert found("removed-index", "Dockerfile", text) == ["2:5 warning"]


def test_an_index_of_uv_is_read(found: Found) -> None:
    text = """
        [project]
        dependencies = ["torch"]
        [[tool.uv.index]]
        url = "https://download.pytorch.org/whl/cu130"
    """
    assert found("removed-index", "pyproject.toml", text) == ["5:8 warning"]


def test_a_step_of_a_workflow_is_read_where_it_stands(found: Found) -> None:
    text = """
        jobs:
          test:
            steps:
              - run: |
                  set -e
                  pip install torch --index-url https://download.pytorch.org/whl/cu126
    """
    assert found("removed-index", ".github/workflows/test.yml", text) == ["7:41 warning"]


def test_a_folded_step_is_one_command(found: Found) -> None:
    text = """
        test:
          script:
            - >-
              pip install torch
              --index-url https://download.pytorch.org/whl/cu126
    """
    assert found("removed-index", ".gitlab-ci.yml", text) == ["6:19 warning"]


def test_a_step_that_is_used_again_is_told_once(found: Found) -> None:
    text = """
        a: &step
          script: pip install torch --index-url https://download.pytorch.org/whl/cu126
        b: *step
    """
    assert found("removed-index", ".gitlab-ci.yml", text) == ["3:41 warning"]


def test_the_pip_section_of_a_conda_environment_is_read(found: Found) -> None:
    text = """
        name: mine
        dependencies:
          - pip:
              - --extra-index-url https://download.pytorch.org/whl/cu126
              - torch
    """
    assert found("removed-index", "environment.yml", text) == ["5:9 warning"]


def test_a_magic_of_a_notebook_is_read_where_it_stands_in_the_file(found: Found) -> None:
    text = """\
        {
         "cells": [
          {
           "cell_type": "code",
           "source": [
            "import os\\n",
            "!pip install torch --index-url https://download.pytorch.org/whl/cu126"
           ]
          }
         ],
         "nbformat": 4
        }
    """
    assert found("removed-index", "train.ipynb", text) == ["7:32 warning"]


def test_a_command_that_code_runs_is_read_word_by_word(found: Found) -> None:
    text = """
        import sys
        command = [sys.executable, "-m", "pip", "install", "torch", "--index-url",
                   "https://download.pytorch.org/whl/cu126"]
    """
    assert found("removed-index", "build.py", text) == ["4:12 warning"]


def test_a_command_in_prose_is_read_between_its_back_ticks(found: Found) -> None:
    text = """
        First run `pip install torch --index-url https://download.pytorch.org/whl/cu126`.
    """
    assert found("removed-index", "README.md", text) == ["2:42 warning"]
