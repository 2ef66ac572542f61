"""How long locking and syncing take, as ratios within one run, on a loopback index.

    python scripts/bench/locking.py [--repeat 5]

`lock` of one target and of six on a warm cache is compared with the bare `uv pip compile` runs that it
needs, side by side, and `lock` of twenty targets with 300 packages each with its twenty, in processor time;
`lock --check` with nothing changed and `sync` with nothing to do with `torchenv --version`.
Of several rounds the fastest of each counts. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
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

GOALS = {"one": 1.25, "lock": 1.25, "many": 1.3, "check": 3.0, "sync": 3.0}

TORCHENV = (str(Path(sys.executable).with_name("torchenv")),)


def main() -> int:
    parser = argparse.ArgumentParser(description="time lock, lock --check and sync")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, serving(busy_world()) as index:
        environ = {**scrub_environ(os.environ), "HOME": place, "UV_CACHE_DIR": f"{place}/cache"}
        took, worked = measure(
            Path(place) / "six",
            index,
            environ,
            options.repeat,
            profile=TEAM,
            packages=PACKAGES,
            targets=TARGETS,
        )
        head = TEAM.partition("[[target]]")[0]
        single, _ = measure(
            Path(place) / "one",
            index,
            environ,
            options.repeat,
            profile=head + write_target(ONE[0]),
            packages=FEW_PACKAGES,
            targets=ONE,
        )
        profile = head + "".join(map(write_target, MANY))
        _, many = measure(
            Path(place) / "twenty", index, environ, 2, profile=profile, packages=MANY_PACKAGES, targets=MANY
        )
    ratios = {
        "one": single["lock"] / single["compile"],
        "lock": took["lock"] / took["compile"],
        "many": many["lock"] / many["compile"],
        "check": took["check"] / took["version"],
        "sync": took["sync"] / took["version"],
    }
    result = {
        "cores": os.cpu_count(),
        "seconds": {name: round(seconds, 3) for name, seconds in took.items()},
        "processor seconds of six": {name: round(seconds, 2) for name, seconds in worked.items()},
        "processor seconds of twenty": {name: round(seconds, 2) for name, seconds in many.items()},
        "ratios": {name: round(ratio, 2) for name, ratio in ratios.items()},
        "goals": GOALS,
    }
    print(json.dumps(result))
    return 0 if all(ratios[name] <= goal for name, goal in GOALS.items()) else 1


def measure(
    directory: Path,
    index: Index,
    environ: Mapping[str, str],
    rounds: int,
    *,
    profile: str,
    packages: int,
    targets: Sequence[Target],
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds and the processor seconds of each task in a project of its own."""
    directory.mkdir()
    asked = f'["lightning", "dep-{PACKAGES_OF_ALL - packages:03}"]'
    text = profile.replace("{root}", index.root).replace('["lightning"]', asked)
    (directory / "torchenv.toml").write_text(text, "utf-8")

    def torchenv(*words: str) -> None:
        ran([(*TORCHENV, *words)], directory, environ)

    first = f"dep-{PACKAGES_OF_ALL - packages:03}"
    compiles = bare(directory, index.torch_root, index.packages, targets, first)
    torchenv("lock")
    tasks = {"compile": lambda: ran(compiles, directory, environ), "lock": lambda: torchenv("lock")}
    if targets is TARGETS:
        torchenv("sync", "--use")
        tasks |= {
            "version": lambda: torchenv("--version"),
            "check": lambda: torchenv("lock", "--check"),
            "sync": lambda: torchenv("sync"),
        }
    return best(rounds, tasks)


# As many packages as a project with a trainer and a model hub has, with as many releases as they have had.
PACKAGES = 80
FEW_PACKAGES = 50
MANY_PACKAGES = PACKAGES_OF_ALL = 300
RELEASES = 60


def busy_world() -> Index:
    """Serve torch beside packages that bring each other along."""
    index = world()
    for number in range(PACKAGES_OF_ALL):
        brought = [f"dep-{other:03}>=1" for other in range(number + 1, min(number + 4, PACKAGES_OF_ALL))]
        for release in range(RELEASES):
            name, version = f"dep-{number:03}", f"{release // 10 + 1}.{release % 10}"
            index.add("simple", Wheel(name=name, version=version, requires=tuple(brought)))
    return index


Target = tuple[str | None, str, str]

# As TEAM has them: the backend, its torch and the platform of each target.
TARGETS: tuple[Target, ...] = (
    ("cu132", "2.15.0+cu132", "linux-x86_64"),
    ("cu126", "2.14.1+cu126", "linux-x86_64"),
    ("rocm7.14", "2.15.0+rocm7.14", "linux-x86_64"),
    ("cpu", "2.15.0+cpu", "linux-x86_64"),
    (None, "2.15.0", "darwin-arm64"),
    ("cu132", "2.15.0+cu132", "windows-x86_64"),
)


ONE = TARGETS[:1]


# The same backends once more for other platforms and releases.
MANY: tuple[Target, ...] = tuple(
    (backend, f"{torch}+{backend}", platform)
    for platform in ("linux-x86_64", "linux-aarch64", "windows-x86_64")
    for torch, backends in (
        ("2.15.0", ("cu132", "cu134", "cpu")),
        ("2.14.1", ("cu126", "cu130", "cu132", "cpu")),
    )
    for backend in backends
)[:20]


def write_target(target: Target) -> str:
    """Write a target as a profile has it."""
    backend, torch, platform = target
    minor, line = f"{sys.version_info[0]}.{sys.version_info[1]}", torch[:4]
    name = f"{backend}-{line}-{platform}".replace(".", "-").replace("_", "-")
    return (
        f'[[target]]\nname = "{name}"\nplatform = "{platform}"\npython = "{minor}"\n'
        f'backend = "{backend}"\ntorch = "{line}"\n\n'
    )


def bare(
    directory: Path, root: str, packages: str, targets: Sequence[Target], first: str
) -> list[tuple[str, ...]]:
    """Write the compile runs, each in a folder of its own, as a person would who knows all names."""
    commands = []
    for number, (backend, torch, platform) in enumerate(targets):
        folder = directory / f"bare-{number}"
        folder.mkdir()
        rocm = ("triton-rocm", "rocm", "rocm-sdk-libraries") if backend and backend.startswith("rocm") else ()
        vision = "0.29.1" if torch.startswith("2.14") else "0.29.2"
        request = LockRequest(
            requirements=(f"torch=={torch}", f"torchvision=={vision}"),
            packages=("lightning", first),
            torch_index=f"{root}/{backend}" if backend else None,
            package_index=packages,
            family=frozenset(rocm),
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


def best(rounds: int, tasks: Mapping[str, Callable[[], None]]) -> tuple[dict[str, float], dict[str, float]]:
    """Time every task in each round, and return the fewest seconds and processor seconds of each."""
    took: dict[str, float] = {}
    worked: dict[str, float] = {}
    for _ in range(rounds):
        for name, task in tasks.items():
            start, before = time.perf_counter(), processor_seconds()
            task()
            seconds, processor = time.perf_counter() - start, processor_seconds() - before
            took[name] = min(seconds, took.get(name, seconds))
            worked[name] = min(processor, worked.get(name, processor))
    return took, worked


def processor_seconds() -> float:
    """Return what the programs that have ended took of the processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
