"""The torchenv command as people run it: in a process of its own, with the real uv, on a loopback index."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.index import Index

from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import EnvironmentKind, State
from torchenv.workspace.store import Store

SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


class Torchenv:
    """Runs commands in one workspace, and can kill them."""

    def __init__(self, directory: Path, index: Index) -> None:
        self.root = directory / "workspace"
        self.store = Store(self.root)
        home = directory / "home"
        home.mkdir(exist_ok=True)
        self.cwd = directory
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(SOURCE),
            "TORCHENV_HOME": str(self.root),
            "TORCHENV_TORCH_INDEX": index.torch_root,
            "TORCHENV_PACKAGE_INDEX": index.packages,
            "UV_CACHE_DIR": str(directory / "cache"),
        }

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "torchenv", *words],
            env={**self.environ, **more},
            cwd=self.cwd,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(self, *words: str, **more: str) -> Said:
        """Run a command to its end."""
        process = self.start(*words, **more)
        out, err = process.communicate(timeout=120)
        return Said(process.returncode, out, err)

    def succeed(self, *words: str, **more: str) -> str:
        """Run a command that must end well, and give what it printed."""
        said = self(*words, **more)
        assert said.code == 0, f"torchenv {' '.join(words)} ended with {said.code}:\n{said.err}"
        return said.out

    def kill_within(self, seconds: float, *words: str, chance: random.Random) -> bool:
        """Kill a command at a moment within its time, and say whether it had not ended before."""
        process = self.start(*words)
        time.sleep(chance.uniform(0, seconds))
        stopped = process.poll() is None
        process.kill()
        # Its children hold the pipes that nobody reads any more.
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
        return stopped and process.returncode == -signal.SIGKILL

    def sound(self) -> Manifest:
        """Return the manifest, and prove that it and the disk say the same."""
        manifest = self.store.read()
        built = [
            environment for environment in manifest.environments if environment.kind is EnvironmentKind.BUILT
        ]
        recorded = {Path(environment.path).name for environment in built if environment.on_disk}
        building = {Path(item.path).name for item in manifest.list_unfinished()}
        found = {path.name for path in self.store.environments.glob("*")}
        assert recorded <= found <= recorded | building
        for entry in manifest.environments:
            assert entry.state is not State.REMOVED or not Path(entry.path).exists()
        if manifest.active is not None:
            assert Path(manifest.active.path).is_dir()
        return manifest

    def torch_in_use(self) -> str:
        """Import torch in the environment in use, and give its version."""
        return self.succeed("run", "--", "python", "-c", "import torch; print(torch.__version__)").strip()
