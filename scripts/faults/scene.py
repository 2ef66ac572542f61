"""A project with a workspace, and all around it that torchenv must leave as it is."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.faults.tally import Broken, require
from tests.support.checkpoints import save
from tests.support.index import Index
from tests.support.loopback import Torchenv
from tests.support.project import PAIR
from tests.support.workspace import write_venv

from torchenv.system.orphans import holders
from torchenv.workspace.manifest import Manifest

# What a command may end with; a run that a signal ended before torchenv could hear it has that signal's code.
DOCUMENTED = frozenset({0, 1, 2, 3, 4, 5, 130})

# Seconds in which every command must end, whatever befalls it.
PATIENCE = 100.0

# What the commands of the scene write beside the workspace, as they are asked to.
_ASKED_FOR = ("pylock.", "torchenv.lock.toml", "wheels", "for-2.14")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; `seconds` is how long it took from its start."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float

    def refuse_defect(self, *more: int) -> None:
        """Raise `Broken` for a traceback, and for an exit code that is neither documented nor in `more`."""
        shown = f"`torchenv {' '.join(self.words)}` ended with {self.code}: {self.err[-1500:]}"
        require("Traceback" not in self.err and "defect in torchenv" not in self.err, shown)
        require(self.code in DOCUMENTED | set(more), shown)


class Scene:
    """A project in `directory` with an adopted environment, two of torchenv's own, and runs of training.

    `around` is a folder of the user's that no command is ever told of.
    """

    def __init__(self, directory: Path, index: Index, *, workspace: Path | None = None) -> None:
        self.directory = directory
        self.index = index
        self.torchenv = Torchenv(directory, index)
        self.home = directory / "home"
        self.around = directory / "around"
        self.project = directory / "project"
        self.scratch = directory / "scratch"
        self.root = workspace or self.project / ".torchenv"
        self.torchenv.root = self.root
        self.torchenv.store = type(self.torchenv.store)(self.root)
        self.torchenv.cwd = self.project
        self.environ = self.torchenv.environ
        self.environ.update(TORCHENV_HOME=str(self.root), TMPDIR=str(self.scratch), LC_ALL="C.UTF-8")
        self._runs = 0

    def make(self) -> Scene:
        """Make all of it."""
        self.scratch.mkdir()
        _write_around(self.around)
        (self.home / ".config" / "uv").mkdir(parents=True)
        (self.home / ".config" / "uv" / "uv.toml").write_text("# the user's own\n", "utf-8")
        (self.home / "notes.txt").write_text("a year of work\n", "utf-8")
        (self.project / ".git").mkdir(parents=True)
        profile = PAIR.replace("{root}", self.index.root) + '\n[checkpoints]\nroots = ["runs"]\n'
        (self.project / "torchenv.toml").write_text(profile, "utf-8")
        write_venv(self.project / ".venv", {"torch": "2.14.1+cpu", "numpy": "2.2.0"})
        self.add_saves()
        for words in (
            ("adopt", ".venv"),
            ("create", "2.14", "--backend", "cpu", "--use"),
            ("create", "2.15", "--backend", "cpu", "--use"),
        ):
            self.succeed(*words)
        return self

    def add_saves(self) -> None:
        """Let a run of training have written two more saves."""
        self._runs += 1
        run = self.project / "runs" / f"run-{self._runs}"
        save(run / "step-100", "dcp-2.14.1")
        save(run / "step-200", "dcp-2.15.0")

    @property
    def newest_run(self) -> str:
        """The run that was added last, from the project."""
        return f"runs/run-{self._runs}"

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Start a command in a session of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "torchenv", *words],
            env={**self.environ, **variables},
            cwd=self.project,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, *words: str, **variables: str) -> Ended:
        """Run a command to its end; raises `Broken` where it does not come."""
        began = time.monotonic()
        return finish(self.start(*words, **variables), words, began)

    def succeed(self, *words: str) -> Ended:
        """Run a command that must end well; raises `Broken`."""
        ended = self.run(*words)
        shown = f"`torchenv {' '.join(words)}` ended with {ended.code}: {ended.err[-1500:]}"
        require(ended.code == 0, shown)
        return ended

    def read(self) -> Manifest:
        """Return the manifest; raises `Broken` where it is damaged."""
        try:
            return self.torchenv.store.read()
        except Exception as error:
            raise Broken(f"the manifest cannot be read: {error}") from None

    def digest(self) -> dict[str, str]:
        """Return what tells whether anything around the workspace has changed."""
        # What uv keeps for itself is uv's.
        own = (".local/state/torchenv", ".local/share/uv", ".cache")
        left_out = (self.root, *(self.home / name for name in own))
        return digest_of((self.home, self.around, self.project), left_out)

    def digest_environments(self) -> dict[int, dict[str, str]]:
        """Return what tells whether a file of a finished environment has changed, by its number."""
        return {
            environment.number: digest_of((Path(environment.path),), ())
            for environment in self.read().environments
            if environment.on_disk
        }

    def make_way_back(self) -> None:
        """Let there be an environment to roll back to, which a command may have removed."""
        manifest = self.read()
        if manifest.rollback_target(lambda environment: environment.on_disk) is None:
            others = [
                environment
                for environment in manifest.environments
                if environment.live and environment.number != manifest.current
            ]
            if not others:
                self.succeed("create", "2.14", "--backend", "cu130")
                others = [self.read().environments[-1]]
            self.succeed("use", str(others[-1].number), "--force")

    def prove_sound(self) -> Manifest:
        """Return the manifest, after it and the disk were found to say the same; raises `Broken`."""
        try:
            manifest = self.torchenv.sound()
        except Exception as error:
            raise Broken(f"the manifest and the disk differ: {error!r}") from None
        require(manifest.active is not None, "no environment is active")
        return manifest

    def prove_clear(self) -> None:
        """Prove that nothing is left of what was stopped; raises `Broken`."""
        left = [str(path) for path in self.root.rglob("*.new")]
        left += [str(path) for path in (self.root / "trash").glob("*")]
        left += [str(path) for path in (self.root / "building").glob("*")]
        left += [str(path) for path in self.scratch.glob("torchenv-*")]
        left += [str(path) for path in (self.root / "envs").glob("*/.torchenv-try-*")]
        for path in map(Path, left):
            # What one try left is not told of the next ones too.
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        require(not left, f"left over: {', '.join(left)}")
        require(not self.read().list_unfinished(), "an unfinished environment is still recorded")
        held = [pid for pid, _ in holders(self.root / "lock") if pid != os.getpid()]
        require(not held, f"processes {held} still hold the workspace")


def finish(process: subprocess.Popen[str], words: tuple[str, ...], began: float) -> Ended:
    """Wait for the end of a command; raises `Broken` where it does not come."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Broken(f"`torchenv {' '.join(words)}` had not ended after {PATIENCE:g} s") from None
    return Ended(words, process.returncode, out, err, time.monotonic() - began)


def digest_of(places: tuple[Path, ...], left_out: tuple[Path, ...]) -> dict[str, str]:
    """Return a digest of the mode, the time, the target and the bytes of every file below some places."""
    digests = {}
    for place in places:
        for path in _walk(place, left_out):
            status = path.lstat()
            content = f"{status.st_mode:o} {status.st_nlink} {status.st_mtime_ns} ".encode()
            if path.is_symlink():
                content += os.fsencode(path.readlink())
            elif path.is_file():
                content += path.read_bytes()
            digests[str(path)] = hashlib.sha256(content).hexdigest()
    return digests


def refuse_changes(before: dict[str, str], after: dict[str, str], what: str = "") -> None:
    """Raise `Broken` where a file came, went or changed, with its name."""
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    require(not changed, f"{', '.join(changed[:5])} changed {what}")


def _walk(place: Path, left_out: tuple[Path, ...]) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(place):
        here = Path(folder)
        folders[:] = [
            name
            for name in folders
            if here / name not in left_out and name != "__pycache__" and not _is_asked_for(name)
        ]
        # A link to a folder is a name too.
        found += [
            here / name for name in (*folders, *names) if not _is_asked_for(name) and not is_draft(name)
        ]
    return [path for path in found if path.is_symlink() or not path.is_dir()]


def is_draft(name: str) -> bool:
    """Whether a file is what a killed run had not yet put in its place; the same command clears it."""
    return name.startswith(".torchenv-") and name.endswith(".new")


def _is_asked_for(name: str) -> bool:
    return name.startswith(_ASKED_FOR[:3]) or _ASKED_FOR[3] in name


def _write_around(place: Path) -> None:
    (place / "deep" / "deeper").mkdir(parents=True)
    for n in range(5):
        (place / f"file-{n}").write_text(f"{n}\n" * 100, "utf-8")
        (place / "deep" / f"file-{n}").write_bytes(os.urandom(100))
    (place / "deep" / "link").symlink_to("../file-0")
    (place / "deep" / "other-name").hardlink_to(place / "file-1")
    (place / "private").write_text("a secret\n", "utf-8")
    (place / "private").chmod(0o600)


def remove_tree(path: Path) -> None:
    """Delete a directory whose rights may have been taken away."""
    for folder, _, _ in os.walk(path):
        if not Path(folder).is_symlink():
            Path(folder).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


Act = Callable[..., Any]
Variables = Mapping[str, str]
