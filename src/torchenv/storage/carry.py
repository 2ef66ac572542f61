"""Bring files to a second place so that no write in one changes the other."""

from __future__ import annotations

from collections.abc import Mapping

from torchenv.errors import ToolFailed
from torchenv.storage import Draft, Place, Progress, Transfer


def carry(
    draft: Draft, source: Place, sizes: Mapping[str, int], aim: str, *, link: bool, progress: Progress
) -> frozenset[Transfer]:
    """Bring files of a place to where a draft is written: cloned where the file system can, else copied.

    With `link` they are hard-linked in place of being copied. `aim` is how people name the goal.
    Raises `ToolFailed` before the first byte is copied where there is no room for all of them.
    """
    shared = {name: draft.share(source, name, link=link) for name in sizes}
    rest = {name: size for name, size in sizes.items() if shared[name] is None}
    total, needed = sum(sizes.values()), sum(rest.values())
    free = draft.free_space()
    if free is not None and needed > free:
        hint = "free some space, or name a place on another disk"
        raise ToolFailed(
            f"`{aim}` needs {describe_size(needed)}, and {describe_size(free)} are free", hint=hint
        )
    done = total - needed
    progress(done, total)
    transfers = {how for how in shared.values() if how is not None}

    def count_bytes(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    for name in rest:
        transfers.add(draft.copy(source, name, count_bytes))
    return frozenset(transfers)


def describe_size(size: int) -> str:
    """Return a number of bytes as people read it, by the largest unit that leaves something to read."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= (1 << shift) // 10:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} bytes"
