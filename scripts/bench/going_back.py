"""What a rollback costs, against `torchenv --version` and against installing the old release again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from scripts.bench.creating import by_pip, by_uv
from scripts.bench.measuring import OLD_TORCH, TORCHENV, Bench, Row, compare, fresh, seconds
from scripts.bench.scanning import make_saves
from tests.support.workspace import Workspace

from torchenv.actions.switch import use

# What keeps a rollback from its bar.
_START = (
    "It imports two hundred modules, and `--version` a handful; what it does not need is left out already."
)
_EVERY_FILE = (
    "Each file of each save is asked for its size and time, so that a save that was written again in"
    " place is seen: four system calls a save, and no byte is read. To ask the directories alone would not"
    " see that."
)


def measure(bench: Bench) -> Iterator[Row]:
    """Yield the rows of rollback with few and with many saves, the look at them included."""
    work = fresh(bench.directory / "going-back")
    version = partial(bench.run, [*TORCHENV, "--version"])
    back = None
    many = () if bench.quick else ((10_000, 5.0), (100_000, 12.0))
    for count, bar in ((1, 5.0), (100, 5.0), *many):
        place = fresh(work / str(count))
        back = make_rollback(bench, place, count)
        yield Row(
            what=f"`rollback` with {count:,} saves, looked at again",
            against="`torchenv --version`",
            values=compare(bench, back, version, rounds=9),
            bar=bar,
            note=_EVERY_FILE if count > 100 else _START,
        )
    if bench.quick or back is None:
        return
    small = make_rollback(bench, fresh(work / "small"), 100)
    for what, act in (
        ("uv", partial(by_uv, bench, work / "uv", f"torch=={OLD_TORCH}")),
        ("pip", partial(by_pip, bench, work / "pip", f"torch=={OLD_TORCH}")),
    ):
        act()  # so that the wheels are in its cache
        again, rolled = seconds(bench, act, rounds=1), seconds(bench, small, rounds=5)
        values = tuple(taken / again[0] for taken in rolled)
        against = f"installing torch {OLD_TORCH} again by {what}, warm"
        yield Row(what="`rollback` with 100 saves", against=against, values=values)


def make_rollback(bench: Bench, place: Path, count: int) -> partial[str]:
    """Make a workspace whose two environments can be switched between, with real saves that were scanned."""
    workspace = Workspace(place)
    for torch in ("2.14.1+cu132", "2.15.0+cu132"):
        workspace.built(torch)
    for number in ("1", "2"):
        use(number, workspace.store, workspace.outside)
    make_saves(place / "runs", count)
    root = ["--root", str(workspace.store.root)]
    bench.run([*TORCHENV, "checkpoints", "scan", *root, place / "runs"])
    return partial(bench.run, [*TORCHENV, "rollback", *root])
