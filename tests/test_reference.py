"""The references in docs/ are what the code says now."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from scripts.reference import (
    ROOT,
    list_own_actions,
    list_parsers,
    write_commands,
    write_documents,
    write_example,
)

from torchenv.profile.model import Profile

DOCUMENTS = write_documents()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_reference_is_what_the_generator_writes(name: str) -> None:
    assert (ROOT / name).read_text("utf-8") == DOCUMENTS[name], "run `python scripts/reference.py`"


def test_every_line_of_every_help_is_in_the_reference() -> None:
    text = write_commands()
    for prog, says, parser in list_parsers():
        assert f"# {prog}\n\n{says}.\n" in text
        for action in list_own_actions(parser):
            assert action.help, f"{prog}: {action.dest} has no help"
            assert action.help.replace("|", "\\|") in text


def test_the_example_of_a_profile_has_every_key_and_is_read() -> None:
    profile = Profile.from_toml("\n".join(write_example()), "example")
    assert [target.name for target in profile.targets] == ["ada"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff here")
def test_the_man_page_is_set_without_a_warning() -> None:
    page = ROOT / "docs" / "torchenv.1"
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-K", "utf-8", "-P-c", "-P-b", "-P-u", page],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.stderr.decode() == ""
    assert "torchenv rollback" in done.stdout.decode()
