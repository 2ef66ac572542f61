"""How long torchenv itself takes until an environment is made, as ratios and seconds within one run.

    python scripts/bench/create.py

Start-up, plan and probe are compared with `python -I -c pass` of the same interpreter. `create` then runs
twice in .build/bench, from the real indexes: the first run fills uv's cache, the second one is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HOST = ROOT / "tests" / "data" / "hosts" / "rtx-4090-driver-580.json"
PROJECT = ROOT / ".build" / "bench"
ROUNDS = 21

PYTHON = [sys.executable, "-I"]
TORCHENV = [str(Path(sys.executable).with_name("torchenv"))]


def main() -> None:
    bare, version, plan, probe = quickest(
        [*PYTHON, "-c", "pass"],
        [*TORCHENV, "--version"],
        [*TORCHENV, "plan", "2.15", "--host", str(HOST), "--json"],
        [*TORCHENV, "probe", "--json"],
    )
    print(f"python -I -c pass: {bare * 1000:.0f} ms")
    print(f"torchenv --version: {version / bare:.1f} times that (at most 3)")
    print(f"torchenv plan 2.15 --host FILE --json: {plan / bare:.1f} times that (at most 8)")
    print(f"torchenv probe: {probe - version:.2f} s beyond start-up (at most 0.5)")

    shutil.rmtree(PROJECT, ignore_errors=True)
    (PROJECT / ".git").mkdir(parents=True)
    try:
        created()
        whole, parts = created()
    finally:
        shutil.rmtree(PROJECT)
    others = sum(each for name, each in parts.items() if name != "wheels prepared")
    print(f"torchenv create 2.15 on a warm cache: {whole:.2f} s")
    for name, took in parts.items():
        print(f"  {name}: {took:.2f}")
    print(f"  torchenv itself: {whole - others:.2f} s (at most 1.5)")


def quickest(*commands: Sequence[str]) -> list[float]:
    """Return the quickest of many rounds of each, taken in turn: other load only ever adds."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(ROUNDS):
        for command, took in zip(commands, times, strict=True):
            start = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            took.append(time.perf_counter() - start)
    return list(map(min, times))


def created() -> tuple[float, dict[str, float]]:
    """Run a whole create in a process of its own; give its seconds, and those of its parts."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "one"], cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True
    )
    return time.perf_counter() - start, json.loads(done.stdout.splitlines()[-1])


def one() -> None:
    """Run `torchenv create 2.15` here with a watch on the programs that it starts and on the isolation."""
    from torchenv.actions import building
    from torchenv.cli import main as torchenv
    from torchenv.environment.unshare import isolate
    from torchenv.system import process

    parts: defaultdict[str, float] = defaultdict(float)

    def watched(act: Callable[..., Any], name_of: Callable[..., str | None]) -> Callable[..., Any]:
        def timed(*given: Any, **more: Any) -> Any:
            start = time.perf_counter()
            result = act(*given, **more)
            name = name_of(*given)
            if name is not None:
                parts[name] += time.perf_counter() - start
            if name == "uv":
                # Prepared 12 packages in 9.61s
                parts["wheels prepared"] += "Prepared" in result.err
            return result

        return timed

    def program(_: object, command: process.Command) -> str | None:
        if Path(command.argv[0]).name == "uv":
            return "uv"
        return "inside check" if any(each.endswith("check.py") for each in command.argv) else None

    process.Programs.__call__ = watched(process.Programs.__call__, program)  # type: ignore[method-assign]
    vars(building)["isolate"] = watched(isolate, lambda _: "isolation")
    streams = sys.stdin, sys.stdout, sys.stderr
    code = torchenv(["create", "2.15"], os.environ, Path.cwd(), *streams)
    print(json.dumps(parts), flush=True)
    os._exit(code)


if __name__ == "__main__":
    one() if sys.argv[1:] == ["one"] else main()
