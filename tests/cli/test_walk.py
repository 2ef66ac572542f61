"""What a walk through the commands prints is in a file, so that a change of words is seen in review.

Write it again with `python -m tests.test_messages` in the top directory of the repository.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from tests.support.index import Index
from tests.support.walk import FILE, walk


@pytest.mark.skipif(
    (sys.platform, platform.machine(), sys.version_info[:2]) != ("linux", "x86_64", (3, 11)),
    reason="what is printed names the platform and the Python",
)
def test_what_is_printed_on_a_walk_is_what_was_reviewed(index: Index, tmp_path: Path) -> None:
    assert walk(tmp_path, index) == FILE.read_text("utf-8"), "write it again: python -m tests.test_messages"
