"""`torchenv prune`: delete environments that are old and needed by nobody."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import timedelta

from torchenv.cli.context import Context
from torchenv.profile.model import duration


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "--keep", type=_count, metavar="N", help="spare the newest N (2, unless an age is given)"
    )
    parser.add_argument("--older-than", type=_age, metavar="30d", help="only those not used for so long")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and delete nothing")
    parser.add_argument("--force", action="store_true", help="though they could not be built again")
    parser.add_argument("--offline", action="store_true", help="do not ask whether they could be built again")


def run(arguments: Namespace, context: Context) -> int:
    """Remove what may go, and say why the rest stays."""
    from torchenv.actions.remove import Pruning, prune
    from torchenv.render.status import describe_pruned

    pruning = Pruning.of(arguments.keep, arguments.older_than, context.now())
    irreplaceable = context.irreplaceable(force=arguments.force)
    pruned = prune(pruning, context.store, context.running, irreplaceable, dry_run=arguments.dry_run)
    context.out(describe_pruned(pruned, dry_run=arguments.dry_run))
    return 0


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ArgumentTypeError(f"{text!r} is not a number")
    return int(text)


def _age(text: str) -> timedelta:
    age = duration(text)
    if age is None:
        raise ArgumentTypeError(f"{text!r} is not a length of time such as 30d or 12h")
    return age
