"""A shell in which `torchenv` is typed: a directory, a home, variables, and nothing of the tester's own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.index import Index

from torchenv.cli import main


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> tuple[int, str]:
        """The exit code with the last words: `error: …` and its hint."""
        return self.code, self.err[self.err.find("error: ") :]

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


@dataclass
class Terminal:
    """Types commands in `cwd`; `environ` is all that the command inherits."""

    cwd: Path
    environ: dict[str, str]

    @classmethod
    def within(cls, folder: Path, index: Index | None = None) -> Terminal:
        """Open one in `folder`/project, where the indexes are those of `index`."""
        for name in ("home", "project/.git"):
            (folder / name).mkdir(parents=True)
        environ = {
            "PATH": os.defpath,
            "HOME": str(folder / "home"),
            "LC_ALL": "C.UTF-8",
            "XDG_CONFIG_DIRS": str(folder / "machine"),
            "UV_CACHE_DIR": str(folder / "cache"),
        }
        if index is not None:
            environ["TORCHENV_TORCH_INDEX"] = index.torch_root
            environ["TORCHENV_PACKAGE_INDEX"] = index.packages
        return cls(folder / "project", environ)

    def type(self, *words: str | Path, **variables: str) -> Ended:
        """Call the command line with the words as a person does, in this process."""
        out, err = io.StringIO(), io.StringIO()
        environ = {**self.environ, **variables}
        code = main(list(map(str, words)), environ, self.cwd, io.StringIO(), out, err)
        return Ended(code, out.getvalue(), err.getvalue())

    def start(self, *words: str | Path, **variables: str) -> Ended:
        """Type `torchenv` and the words in a process of its own, and wait for the end."""
        done = subprocess.run(
            self.argv(*words),
            cwd=self.cwd,
            env={**self.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=120,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def create(self, *words: str | Path, **variables: str) -> Ended:
        """Type `torchenv create 2.15` for the CPU, on the Python that runs the tests."""
        chosen = ("create", "2.15", "--backend", "cpu", "--python", sys.executable)
        return self.type(*chosen, *words, **variables)

    def argv(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-m", "torchenv", *map(str, words)]

    @property
    def workspace(self) -> Path:
        return self.cwd / ".torchenv"

    def built(self) -> list[str]:
        """The names of the environments that are there, finished or not."""
        envs = self.workspace / "envs"
        return sorted(path.name for path in envs.iterdir()) if envs.is_dir() else []
