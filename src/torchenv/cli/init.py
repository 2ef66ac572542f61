"""`torchenv init`: write torchenv.toml for this project."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import suppress

from torchenv.cli.context import PROJECT_FILE, Context
from torchenv.errors import InputError
from torchenv.profile.packaged import list_profile_names, read_packaged_profile


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    known = ", ".join(list_profile_names())
    parser.add_argument("--profile", metavar="NAME", default="default", help=f"begin with one of {known}")


def run(arguments: Namespace, context: Context) -> int:
    """Write the file, which must not be there yet."""
    text, _ = read_packaged_profile(arguments.profile)
    path = (context.project or context.cwd) / PROJECT_FILE
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} is there already", hint="edit it, or remove it first") from None
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    context.say(f"wrote {path}; `torchenv plan` says what it would give on this machine")
    return 0
