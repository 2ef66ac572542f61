"""Words for people that every room needs."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return a number with its noun, which ends in `s` for all but one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
