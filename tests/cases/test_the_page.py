"""docs/cases.md names tests that are there, and every test of a case is on it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "cases.md").read_text("utf-8")
NAMED = re.findall(r"`([\w/.-]+\.py)(?:::(\w+))?`", PAGE)


def test_every_test_that_the_page_names_is_there() -> None:
    assert NAMED != []
    for file, name in NAMED:
        text = (TESTS / file).read_text("utf-8")
        assert not name or f"def {name}(" in text, f"{file}::{name}"


def test_every_case_with_a_test_of_its_own_is_on_the_page() -> None:
    here = {f"cases/{path.name}" for path in TESTS.glob("cases/test_[0-9]*.py")}
    assert here <= {file for file, _ in NAMED}
