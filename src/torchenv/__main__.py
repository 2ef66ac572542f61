"""Lets `python -m torchenv` do what the `torchenv` command does."""

import os
import sys


def _look_nowhere_first() -> None:
    """Take the current directory off the path: what lies there may have come with a repository."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - before any import
    if "-m" in sys.orig_argv and not sys.flags.safe_path and sys.path and sys.path[0] != here:
        del sys.path[0]


_look_nowhere_first()

from torchenv.cli import entry  # noqa: E402 - after that

entry()
