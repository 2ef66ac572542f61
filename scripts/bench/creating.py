"""What a new environment costs in time and disk, against uv and pip doing the same, on real wheels."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from scripts.bench.measuring import TORCH, TORCHENV, UV, Bench, Row, compare, fresh, seconds

from torchenv.environment.inspect import describe, distributions
from torchenv.environment.unshare import isolate

# What projects with torch have beside it: with what these bring along, seventy packages.
BESIDE = ("transformers", "accelerate", "datasets", "pandas", "scikit-learn", "matplotlib", "fastapi", "rich")


def measure(bench: Bench) -> Iterator[Row]:
    """Yield the rows of create: cold and warm, alone and with many packages, and the disk that it takes."""
    work = fresh(bench.directory / "creating")
    warm = f"`uv venv` + `uv pip install torch=={TORCH}` + `import torch`, warm"
    again = [*TORCHENV, "create", TORCH, "--again"]
    assert bench.environment.is_dir()
    yield Row(
        what="`create 2.15`, warm",
        against=warm,
        values=compare(
            bench,
            lambda: bench.run(again, cwd=bench.project),
            lambda: by_uv(bench, new(work), f"torch=={TORCH}"),
            rounds=3,
        ),
        bar=1.35,
    )
    if not bench.quick:
        yield Row(
            what="`create 2.15`, warm",
            against="`python -m venv` + `pip install` + `import torch`, warm",
            values=compare(
                bench,
                lambda: bench.run(again, cwd=bench.project),
                lambda: by_pip(bench, new(work), f"torch=={TORCH}"),
                rounds=1,
            ),
        )
        yield many(bench, work)
    yield from on_disk(bench, work)
    yield isolation(bench, work)
    if not bench.quick:
        # Last: it deletes what it made, and the next to make files would pay for that.
        yield cold(bench, work)


def new(work: Path) -> Path:
    """Return a directory that was not there.

    Right after thousands of files were deleted, ext4 is slow in making others, for whoever comes next.
    """
    return work / f"env-{next(_numbers)}"


_numbers = itertools.count(1)


def cold(bench: Bench, work: Path) -> Row:
    """Compare the first environment of a machine: everything is downloaded, by either."""

    def create() -> None:
        project = fresh(work / "cold")
        (project / ".git").mkdir()
        bench.run(
            [*TORCHENV, "create", TORCH], cwd=project, variables={"UV_CACHE_DIR": str(project / "cache")}
        )
        shutil.rmtree(project)

    def install() -> None:
        project = fresh(work / "cold")
        by_uv(bench, project / "uv", f"torch=={TORCH}", cache=project / "cache")
        shutil.rmtree(project)

    took, bare = (seconds(bench, act, rounds=2) for act in (create, install))
    ratios = tuple(ours / theirs for ours, theirs in zip(took, bare, strict=True))
    return Row(what="`create 2.15`, all downloaded", against="the same by uv, all downloaded", values=ratios)


def by_uv(bench: Bench, target: Path, *requirements: str, cache: Path | None = None) -> None:
    """Make an environment as a person would with uv, and look whether torch is imported."""
    python = target / "bin" / "python"
    variables = {"UV_CACHE_DIR": str(cache)} if cache else {}
    bench.run([*UV, "venv", "--clear", "--python", sys.executable, target], variables=variables)
    bench.run([*UV, "pip", "install", "--python", python, *requirements], variables=variables)
    bench.run([python, "-I", "-c", "import torch"])


def by_pip(bench: Bench, target: Path, *requirements: str) -> None:
    """Make an environment as a person would with pip, and look whether torch is imported."""
    from torchenv.installers.pip import find_carried_pip

    shutil.rmtree(target, ignore_errors=True)
    python = target / "bin" / "python"
    bench.run([sys.executable, "-m", "venv", "--without-pip", target])
    bench.run([python, find_carried_pip() / "pip", "install", "--quiet", *requirements])
    bench.run([python, "-I", "-c", "import torch"])


def many(bench: Bench, work: Path) -> Row:
    """Compare an environment with the packages of another one, at their versions."""
    model = work / "model"
    by_uv(bench, model, f"torch=={TORCH}", *BESIDE)
    frozen = bench.run([*UV, "pip", "freeze", "--python", model / "bin" / "python"]).split("\n")
    pins = [line for line in frozen if "==" in line]
    ratios = compare(
        bench,
        lambda: bench.run([*TORCHENV, "create", TORCH, "--again", "--like", str(model)], cwd=bench.project),
        lambda: by_uv(bench, new(work), *pins),
        rounds=2,
    )
    count = len(distributions(describe(model)))
    return Row(
        what=f"`create 2.15 --like ENV` of {count} packages",
        against="`uv venv` + `uv pip install` of the same pins + `import torch`",
        values=ratios,
        bar=1.6,
    )


def on_disk(bench: Bench, work: Path) -> Iterator[Row]:
    """Yield what each further environment takes of the disk, beside uv's cache and the ones before it."""
    cache = Path(bench.run([*UV, "cache", "dir"]).strip())
    environments = bench.project / ".torchenv" / "envs"
    made = sorted(environments.iterdir(), key=lambda path: path.stat().st_mtime)
    wanted = {2: "second"} if bench.quick else {2: "second", 5: "fifth"}
    while len(made) < max(wanted):
        bench.run([*TORCHENV, "create", TORCH, "--again"], cwd=bench.project)
        made = sorted(environments.iterdir(), key=lambda path: path.stat().st_mtime)
    for number, word in wanted.items():
        before, after = (used(cache, *made[:count]) for count in (number - 1, number))
        yield Row(
            what=f"disk of the {word} environment", against="", values=((after - before) / 1e9,), unit="GB"
        )
    linked = new(work)
    by_uv(bench, linked, f"torch=={TORCH}")
    hard_linked = (used(cache, linked) - used(cache)) / 1e9
    yield Row(what="disk of an environment by uv, hard-linked", against="", values=(hard_linked,), unit="GB")


def used(*directories: Path) -> int:
    """Return the bytes on disk of all files below, each inode once."""
    seen: dict[tuple[int, int], int] = {}
    for directory in directories:
        for path in directory.rglob("*"):
            status = path.lstat()
            seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def isolation(bench: Bench, work: Path) -> Row:
    """Measure how long it takes to give files their own inodes in a fresh, hard-linked environment."""
    taken: list[float] = []
    for _ in range(bench.rounds(3)):
        target = new(work)
        by_uv(bench, target, f"torch=={TORCH}")
        taken += seconds(bench, partial(isolate, target), rounds=1)
    count = sum(path.is_file() for path in target.rglob("*"))
    note = "`create` does it while torch is imported; after thousands of deletions ext4 takes longer"
    return Row(
        what=f"isolation of {count:,} files", against="", values=tuple(taken), bar=3.0, unit="s", note=note
    )
