"""What packing an environment into one file takes, against tar and zstd doing the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial

from scripts.bench.measuring import TORCHENV, Bench, Row, compare, fresh


def measure(bench: Bench) -> Iterator[Row]:
    """Yield the row of pack, where zstd is there to compare with."""
    work = fresh(bench.directory / "packing")
    directory = bench.environment
    if not (shutil.which("zstd") and shutil.which("tar")):
        return
    listed = json.loads(bench.run([*TORCHENV, "list", "--json"], cwd=bench.project))
    number = str(listed["environments"][-1]["number"])
    packed, bare = work / "env.tar.zst", work / "bare.tar.zst"
    pack = ["sh", "-c", f"rm -f '{packed}'; exec '{TORCHENV[0]}' pack {number} '{packed}'"]
    tar = ["sh", "-c", f"tar -C '{directory.parent}' -cf - '{directory.name}' | zstd -q -f -T0 -o '{bare}'"]
    yield Row(
        what="`pack ENV FILE.tar.zst`",
        against="`tar | zstd -T0`",
        values=compare(bench, partial(bench.run, pack, cwd=bench.project), partial(bench.run, tar), rounds=1),
    )
