"""argparse, with its complaints turned into torchenv's own errors, and what a command is made of."""

from __future__ import annotations

import re
from argparse import Action, ArgumentParser, HelpFormatter, Namespace
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from torchenv.errors import InputError
from torchenv.system.documents import nearest

if TYPE_CHECKING:
    from pathlib import Path

    from torchenv.cli.session import Session

F = TypeVar("F")

# argparse formats each argument once on trial; only a help needs the terminal's width, 1 ms to ask for.
_TRIAL = partial(HelpFormatter, width=100)


class HelpAsked(Exception):
    """`--help` was among the words; `text` answers it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


# What pip, uv and conda call an option that is called otherwise here.
_ELSEWHERE = {
    "-r": "--from",
    "--requirement": "--from",
    "--requirements": "--from",
    "-f": "--from",
    "--file": "--from",
    "-p": "--python",
    "-n": "--name",
    "--torch-backend": "--backend",
    "--cuda": "--backend",
}


class Parser(ArgumentParser):
    """A parser that raises `InputError`, so that there is one place where errors are printed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, formatter_class=_TRIAL)

    def parse(self, words: list[str]) -> Namespace:
        """Read the words of a command; an unknown option is answered with the nearest known one."""
        flags, unknown = self.parse_known_args(words)
        if unknown:
            raise InputError(
                f"unexpected argument `{unknown[0]}` for `{self.prog}`",
                hint=self._translate(unknown[0])
                or self._name_owner(unknown[0])
                or self._guess(unknown[0])
                or f"see `{self.prog} --help`",
            )
        return flags

    @property
    def options(self) -> list[str]:
        """The names of all options."""
        return [option for action in self._actions for option in action.option_strings]

    def _translate(self, option: str) -> str | None:
        """Return a hint with the option that other tools call by this name."""
        own = _ELSEWHERE.get(option.partition("=")[0])
        return f"use `{own}`" if own in self.options else None

    def _guess(self, option: str) -> str | None:
        """Guess which option was meant, by its letters alone: two dashes make no two words alike."""
        bare = {name.lstrip("-"): name for name in self.options if name.startswith("--")}
        word = option.partition("=")[0].lstrip("-")
        found = nearest(word, bare)
        return found and re.sub(r"`(.*)`", lambda match: f"`{bare[match[1]]}`", found)

    def _name_owner(self, option: str) -> str | None:
        """Return a hint that names the commands which take an option that this one does not."""
        from torchenv.cli import COMMANDS, make_parser

        owners = [
            f"`torchenv {name}`"
            for name in COMMANDS
            if option.startswith("--") and option in make_parser(name)[0].options
        ]
        return f"use it with {' or '.join(owners[:3])}" if owners else None

    def _check_value(self, action: Action, value: object) -> None:
        """Answer a word that is none of the choices with the nearest one."""
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            what = action.option_strings[-1] if action.option_strings else self.prog
            hint = nearest(str(value), known) or f"use one of {', '.join(known)}"
            if action.option_strings:
                raise InputError(f"`{value}` is not a value of `{what}`", hint=hint)
            raise InputError(f"`{what} {value}` not found", hint=hint)

    def print_help(self, _: object = None) -> NoReturn:
        """Raise the help in place of printing it: there is one place that prints."""
        if self.formatter_class is _TRIAL:
            self.formatter_class = HelpFormatter
        raise HelpAsked(self.format_help().rstrip("\n"))

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print, in the words of the other errors."""
        hint = f"see `{self.prog} --help`"
        missing = message.partition("arguments are required: ")[2]
        if missing:
            named = " and ".join(f"`{name}`" for name in missing.split(", "))
            raise InputError(f"`{self.prog}` needs {named}", hint=hint)
        if not message.startswith("argument "):
            raise InputError(f"`{self.prog}`: {message}", hint=hint)
        what, _, wrong = message.removeprefix("argument ").partition(": ")
        other = wrong.partition("not allowed with argument ")[2]
        if other:
            raise InputError(f"`{other}` and `{what}` exclude each other", hint="leave one of them out")
        if wrong.startswith("expected "):
            raise InputError(f"`{what}` needs a value", hint=hint)
        raise InputError(
            f"`{what}` {wrong}" if wrong.startswith("must ") else f"`{what}`: {wrong}", hint=hint
        )


class CommandSpec(NamedTuple):
    """A command: how its words are declared, how its flags become a value, and what it does with them."""

    declare: Callable[[Parser], None]
    read: Callable[[Namespace, Path], Any]
    run: Callable[[Any, Session], int]


def reader(kind: Callable[..., F]) -> Callable[[Namespace, Path], F]:
    """Return what makes a named tuple of the flags that bear the names of its fields."""
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]

    def read(flags: Namespace, _: Path) -> F:
        return kind(*(getattr(flags, name) for name in fields))

    return read
