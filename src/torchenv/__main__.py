"""Lets `python -m torchenv` do what the `torchenv` command does."""

from torchenv.cli import entry

entry()
