"""How long locking and syncing take, as ratios within one run, on a loopback index.

    python scripts/bench/locking.py [--repeat 5]

`lock` of six targets on a warm cache is compared with the six bare `uv pip compile` runs that it needs,
side by side; `lock --check` with nothing changed and `sync` with nothing to do with `torchenv --version`.
Of several rounds the fastest of each counts. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.index import Index, serving
from tests.support.project import TEAM
from tests.support.wheels import Wheel
from tests.support.world import world

from torchenv.installers import LockRequest
from torchenv.installers.uv import lock_command, project, uv_program
from torchenv.system.process import scrub_environ

GOALS = {"lock": 1.3, "check": 3.0, "sync": 4.0}

TORCHENV = (str(Path(sys.executable).with_name("torchenv")),)


def main() -> int:
    parser = argparse.ArgumentParser(description="time lock, lock --check and sync")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, serving(busy_world()) as index:
        directory = Path(place) / "project"
        directory.mkdir()
        environ = {**scrub_environ(os.environ), "HOME": place, "UV_CACHE_DIR": f"{place}/cache"}
        (directory / "torchenv.toml").write_text(profile(index.root), "utf-8")

        def torchenv(*words: str) -> None:
            ran([(*TORCHENV, *words)], directory, environ)

        compiles = bare(directory, index.torch_root, index.packages)
        torchenv("lock")
        torchenv("sync", "--use")
        took = best(
            options.repeat,
            {
                "compile": lambda: ran(compiles, directory, environ),
                "lock": lambda: torchenv("lock"),
                "version": lambda: torchenv("--version"),
                "check": lambda: torchenv("lock", "--check"),
                "sync": lambda: torchenv("sync"),
            },
        )
    ratios = {
        "lock": took["lock"] / took["compile"],
        "check": took["check"] / took["version"],
        "sync": took["sync"] / took["version"],
    }
    result = {
        "cores": os.cpu_count(),
        "seconds": {name: round(each, 3) for name, each in took.items()},
        "ratios": {name: round(each, 2) for name, each in ratios.items()},
        "goals": GOALS,
    }
    print(json.dumps(result))
    return 0 if all(ratios[name] <= goal for name, goal in GOALS.items()) else 1


# As many packages as a project with a trainer and a model hub has, with as many releases as they have had.
PACKAGES = 80
RELEASES = 60


def busy_world() -> Index:
    """Serve torch beside packages that bring each other along."""
    index = world()
    for number in range(PACKAGES):
        brought = [f"dep-{each:02}>=1" for each in range(number + 1, min(number + 4, PACKAGES))]
        for release in range(RELEASES):
            name, version = f"dep-{number:02}", f"{release // 10 + 1}.{release % 10}"
            index.add("simple", Wheel(name=name, version=version, requires=tuple(brought)))
    return index


def profile(root: str) -> str:
    return TEAM.replace("{root}", root).replace('["lightning"]', '["lightning", "dep-00"]')


# As TEAM has them: the backend, its torch and the platform of each target.
TARGETS = (
    ("cu132", "2.15.0+cu132", "linux-x86_64"),
    ("cu126", "2.14.1+cu126", "linux-x86_64"),
    ("rocm7.14", "2.15.0+rocm7.14", "linux-x86_64"),
    ("cpu", "2.15.0+cpu", "linux-x86_64"),
    (None, "2.15.0", "darwin-arm64"),
    ("cu132", "2.15.0+cu132", "windows-x86_64"),
)


def bare(directory: Path, root: str, packages: str) -> list[tuple[str, ...]]:
    """Write the six compile runs, each in a folder of its own, as a person would who knows all names."""
    commands = []
    for number, (backend, torch, platform) in enumerate(TARGETS):
        folder = directory / f"bare-{number}"
        folder.mkdir()
        rocm = ("triton-rocm", "rocm", "rocm-sdk-libraries") if backend and backend.startswith("rocm") else ()
        vision = "0.29.1" if torch.startswith("2.14") else "0.29.2"
        request = LockRequest(
            requirements=(f"torch=={torch}", f"torchvision=={vision}"),
            packages=("lightning", "dep-00"),
            torch_index=f"{root}/{backend}" if backend else None,
            package_index=packages,
            python=f"{sys.version_info[0]}.{sys.version_info[1]}",
            platform=platform,
            macos="14.0",
        )
        bound = frozenset({"torch", "torchvision", *rocm}) if backend else frozenset()
        (folder / "pyproject.toml").write_text(project(request, bound), "utf-8")
        command = lock_command(uv_program(), folder, request)
        variables = (f"{name}={value}" for name, value in command.env.items())
        commands.append(("env", "-C", str(folder), *variables, *command.argv))
    return commands


def ran(commands: Sequence[Sequence[str]], directory: Path, environ: Mapping[str, str]) -> None:
    """Run commands side by side."""
    started = [
        subprocess.Popen(each, cwd=directory, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for each in commands
    ]
    for child in started:
        _, said = child.communicate()
        if child.returncode:
            raise SystemExit(said.decode())


def best(rounds: int, tasks: Mapping[str, Callable[[], None]]) -> dict[str, float]:
    """Time every task in each round, and give the fastest of each in seconds."""
    took: dict[str, float] = {}
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            seconds = time.perf_counter() - start
            took[name] = min(seconds, took.get(name, seconds))
    return took


if __name__ == "__main__":
    sys.exit(main())
