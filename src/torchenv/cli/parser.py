"""argparse, with its complaints turned into torchenv's own errors."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import NoReturn

from torchenv.errors import InputError
from torchenv.system.documents import nearest


class Parser(ArgumentParser):
    """A parser that raises `InputError`, so that there is one place where errors are printed."""

    def parse(self, words: list[str]) -> Namespace:
        """Read the words of a command; an unknown option is answered with the nearest known one."""
        arguments, unknown = self.parse_known_args(words)
        if unknown:
            known = [each for action in self._actions for each in action.option_strings]
            hint = nearest(unknown[0], known) or f"`{self.prog} --help` lists what it takes"
            raise InputError(f"{self.prog} does not take {unknown[0]}", hint=hint)
        return arguments

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise InputError(f"{self.prog}: {message}", hint=f"`{self.prog} --help` lists what it takes")
