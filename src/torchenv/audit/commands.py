"""Shell text as commands whose words know their place: scripts, Dockerfiles, CI, notebooks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchenv.audit.findings import TextPlace
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator


@frozen
class Word:
    """One word of a command, without its quotes."""

    text: str
    place: TextPlace


Command = tuple[Word, ...]

_TOKEN = re.compile(
    r"""
    (?P<blank> [^\S\n]+ | \\\r?\n )
  | (?P<comment> (?<![^\s;&|()]) \# [^\n]* )
  | (?P<end> \n | ; | && | \|\|? | & | \( | \) )
  | (?P<word> (?: \\. | '[^'\n]*' | "(?:\\.|[^"\\])*" | [^\s;&|()'"\\] | ['"\\] )+ )
    """,
    re.VERBOSE | re.DOTALL,
)


def commands(text: str, lines: Lines | None = None, offset: int = 0) -> Iterator[Command]:
    """Yield the commands of shell text, without comments and with continued lines joined.

    `lines` places the words in a larger text that this one was cut from, at `offset`.
    """
    lines = lines or Lines(text)
    words: list[Word] = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "word":
            words.append(Word(_unquote(match[0]), lines.place(offset + match.start())))
        elif match.lastgroup == "end" and words:
            yield tuple(words)
            words = []
    if words:
        yield tuple(words)


class Lines:
    """Where the lines of a text begin, to turn an offset into a place."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, offset: int) -> TextPlace:
        from bisect import bisect_right

        line = bisect_right(self._starts, offset)
        return TextPlace(line, offset - self._starts[line - 1] + 1)


def _unquote(word: str) -> str:
    return re.sub(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""", _inside, word, flags=re.DOTALL)


def _inside(match: re.Match[str]) -> str:
    return next((group for group in match.groups() if group is not None), "")
