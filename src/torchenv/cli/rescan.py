"""Look again at the checkpoints before a command says anything of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchenv.actions.rescan import Rescan
    from torchenv.cli.context import Context


def list_roots(context: Context) -> tuple[str, ...]:
    """Return where checkpoints are known to be: the profile's roots, what runs wrote to, usual names."""
    from torchenv.actions.checkpoints import address_of
    from torchenv.actions.rescan import find_roots

    path = context.profile_path
    beside = path.parent if path else context.project or context.cwd
    named = [address_of(root, beside) for root in _list_profile_roots(context)]
    return find_roots(named, context.store.read_written(), context.project, context.home)


def _list_profile_roots(context: Context) -> tuple[str, ...]:
    from torchenv.errors import InputError

    try:
        return context.profile.checkpoints.roots
    except InputError as error:
        # A profile with a mistake in it must not take the way back.
        context.say(f"note: {error.message}")
        return ()


def rescan_checkpoints(context: Context, *, record: bool = True) -> Rescan:
    """Look again below all roots that are known, and say what could not be looked at."""
    from torchenv.actions.rescan import rescan

    seen = rescan(
        list_roots(context),
        context.store,
        system=context.system,
        record=record,
        now=context.now().timestamp(),
    )
    for note in seen.notes:
        context.say(f"note: {note}")
    return seen
