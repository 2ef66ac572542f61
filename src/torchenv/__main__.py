"""Lets `python -m torchenv` do what the `torchenv` command does."""

import sys

from torchenv.cli import main

sys.exit(main())
