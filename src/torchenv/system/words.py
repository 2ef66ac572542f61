"""Words for people that every room needs."""

from __future__ import annotations

import re

# ESC [ 1 m, which makes a terminal write in bold
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def count(number: int, noun: str) -> str:
    """Return a number with its noun, which ends in `s` for all but one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def describe_age(seconds: float) -> str:
    """Return how long ago something was, such as `3 min ago`; what is younger than a minute was just now."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"


def drop_colours(text: str) -> str:
    """Return the words of a program without what colours them on a terminal."""
    return _COLOUR.sub("", text)
