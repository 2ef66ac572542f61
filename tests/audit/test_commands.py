"""How shell text is read as commands whose words know their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchenv.audit.commands import commands


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command] for command in commands(text)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a b\nc", [["a", "b"], ["c"]]),
        ("a && b; c | d", [["a"], ["b"], ["c"], ["d"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a # b && c\nd", [["a"], ["d"]]),
        ("a b#c", [["a", "b#c"]]),
        ("A=\"b c\" d", [["A=b c", "d"]]),
        ("don't stop\nb", [["don't", "stop"], ["b"]]),
        ("torch>=2.1", [["torch>=2.1"]]),
        ("", []),
    ],
)  # fmt: skip
def test_text_is_parted_into_commands(text: str, told: list[list[str]]) -> None:
    assert words(text) == told


def test_a_word_knows_its_line_and_column() -> None:
    (command,) = commands("\na \\\n  b")
    assert [(word.place.line, word.place.column) for word in command] == [(2, 1), (3, 3)]


@given(st.text(alphabet="ab'\"\\#;&|()\n $=é"))
def test_any_text_is_read_and_no_letter_moves(text: str) -> None:
    lines = text.split("\n")
    for command in commands(text):
        for word in command:
            assert lines[word.place.line - 1][word.place.column - 1 :] != ""
