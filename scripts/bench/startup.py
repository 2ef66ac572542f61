"""How long a short command takes, against an interpreter that does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from scripts.bench.measuring import PYTHON, TOP, TORCHENV, UV, Bench, Row, compare, fresh
from tests.support.workspace import Workspace

HOST = TOP / "tests" / "data" / "hosts" / "rtx-4090-driver-580.json"
NOTHING = [*PYTHON, "-c", "pass"]


def measure(bench: Bench) -> Iterator[Row]:
    """Yield the rows of start-up, in a workspace of ten environments."""
    workspace = Workspace(fresh(bench.directory / "startup"))
    for number in range(10):
        workspace.built(f"2.{number + 5}.0+cu132")
    root = ["--root", str(workspace.store.root)]
    bare = partial(bench.run, NOTHING)
    for what, words, bar in (
        ("`torchenv --version`", ["--version"], 2.0),
        ("`plan 2.15 --host FILE --json`", ["plan", "2.15", "--host", str(HOST), "--json"], 7.0),
        ("`probe --json`", ["probe", "--json"], None),
        ("`list`", ["list", *root], None),
        ("`status`", ["status", *root], None),
        (
            "`completion --words environments`, which a shell asks",
            ["completion", "--words", "environments", *root],
            None,
        ),
    ):
        ratios = compare(bench, partial(bench.run, [*TORCHENV, *words]), bare, rounds=21)
        yield Row(what=what, against="`python -I -c pass`", values=ratios, bar=bar)
    uv = partial(bench.run, [*UV, "--version"])
    ratios = compare(bench, partial(bench.run, [*TORCHENV, "--version"]), uv, rounds=21)
    yield Row(what="`torchenv --version`", against="`uv --version`", values=ratios)
