"""Overrides to AMD chips that the release left."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_an_override_to_gfx900_is_found(found: Found) -> None:
    text = """
        export HSA_OVERRIDE_GFX_VERSION=9.0.0
    """
    assert found("removed-gfx", "run.sh", text) == ["2:8 error"]


def test_9_0_10_is_gfx90a_and_stays(found: Found) -> None:
    text = """
        export HSA_OVERRIDE_GFX_VERSION=9.0.10
    """
    assert found("removed-gfx", "run.sh", text) == []


def test_a_newer_chip_is_right(found: Found) -> None:
    text = """
        ENV HSA_OVERRIDE_GFX_VERSION 11.0.0
    """
    assert found("removed-gfx", "Dockerfile", text) == []


def test_code_that_sets_it_through_an_alias_is_found(found: Found) -> None:
    text = """
        from os import environ as env
        env["HSA_OVERRIDE_GFX_VERSION"] = "9.0.6"
    """
    assert found("removed-gfx", "run.py", text) == ["3:5 error"]


def test_code_that_only_reads_it_is_not(found: Found) -> None:
    text = """
        import os
        print(os.environ["HSA_OVERRIDE_GFX_VERSION"], "9.0.6")
    """
    assert found("removed-gfx", "run.py", text) == []


def test_a_compose_file_is_read(found: Found) -> None:
    text = """
        services:
          train:
            environment:
              HSA_OVERRIDE_GFX_VERSION: "9.0.0"
    """
    assert found("removed-gfx", "compose.yaml", text) == ["5:33 error"]
