"""Odd places, and rights that are missing."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from scripts.faults.scene import Ended, Scene, finish, refuse_changes, remove_tree
from scripts.faults.tally import Tally, require
from tests.support.index import Index, serving
from tests.support.rights import drop_capabilities
from tests.support.world import world

COMMANDS = (
    ("status",),
    ("list", "--json"),
    ("plan", "2.15", "--backend", "cpu"),
    ("create", "2.15", "--backend", "cu132"),
    ("use", "1", "--force"),
    ("rollback",),
    ("remove", "2", "--offline"),
    ("prune", "--offline"),
    ("verify", "2"),
    ("lock",),
    ("sync", "ci"),
    ("checkpoints", "scan"),
    ("checkpoints", "keep", "--copy", "runs/run-1/step-100"),
    ("checkpoints", "downgrade", "runs/run-1/step-200", "--for", "2.14"),
    ("probe", "--json"),
    ("init",),
    ("trust", "."),
    ("adopt", ".venv"),
    ("add", "lightning"),
    ("report",),
)


def run_places(directory: Path, tries: int, seed: int) -> Tally:
    """Run commands where something about the place or the rights is odd."""
    chance, tally = random.Random(seed), Tally("places and rights", seed)
    with serving(world()) as index:
        scene = _make(directory, index)
        for n in range(tries):
            name = list(ODDITIES)[n % len(ODDITIES)]
            words = (
                COMMANDS[(n // len(ODDITIES) + n) % len(COMMANDS)] if n < 2000 else chance.choice(COMMANDS)
            )
            what = f"try {n} of seed {seed}: `torchenv {' '.join(words)}` with {name}"
            with tally.trying("rights" if name.startswith("no right") else "places", what):
                _try(scene, directory, name, words)
    return tally


def _make(directory: Path, index: Index) -> Scene:
    place = directory / "scene"
    place.mkdir()
    scene = Scene(place, index)
    scene.make()
    subprocess.run(["cp", "-a", str(place), str(directory / "whole")], check=True)
    return scene


def _try(scene: Scene, directory: Path, name: str, words: tuple[str, ...]) -> None:
    _restore(scene, directory)
    locked = scene.directory / "locked"
    (locked / "inner").mkdir(parents=True)
    locked.chmod(0)
    around = scene.digest()
    changes = ODDITIES[name](scene) or {}
    if "is-replaced" in changes:
        around = scene.digest()
    ended = _run_denied(scene, words, {key: str(value) for key, value in changes.items()})
    ended.refuse_defect()
    # What was taken away is given back: then all is as before, and the next command works.
    _give_back()
    if "changes-around" not in changes:
        refuse_changes(around, scene.digest())
    if (scene.root / "manifest.toml").is_file() and name not in _DAMAGING:
        scene.prove_sound()
        ended = _run_denied(scene, ("rollback",), {})
        ended.refuse_defect()
        require(ended.code in {0, 3}, f"the next command ended with {ended.code}: {ended.err[-800:]}")


# After these there is no record any more, or another user's.
_DAMAGING = frozenset({"a manifest that is a directory", "a workspace that is a file"})


def _restore(scene: Scene, directory: Path) -> None:
    remove_tree(scene.directory)
    shutil.rmtree(scene.directory, ignore_errors=True)
    subprocess.run(["cp", "-a", str(directory / "whole"), str(scene.directory)], check=True)


def _give_back() -> None:
    for path, mode in _TAKEN.items():
        if path.exists() and not path.is_symlink():
            path.chmod(mode)
    _TAKEN.clear()


def _run_denied(scene: Scene, words: tuple[str, ...], changes: dict[str, str]) -> Ended:
    environ = {**scene.environ, **{name: value for name, value in changes.items() if name.isupper()}}
    for name in [name for name, value in environ.items() if value == "(unset)"]:
        del environ[name]
    cwd = changes.get("cwd", str(scene.project))
    prefix = changes.get("prefix", "").split()
    began = time.monotonic()
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "torchenv", *words],
        env=environ,
        cwd=cwd,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=drop_capabilities,  # noqa: PLW1509 - nothing here waits for a lock of a thread
    )
    return finish(process, words, began)


_TAKEN: dict[Path, int] = {}

Oddity = Callable[[Scene], "dict[str, object] | None"]


def _without(*names: str, mode: int = 0) -> Oddity:
    def take(scene: Scene) -> None:
        for name in names:
            path = scene.directory / name
            if path.exists():
                _TAKEN[path] = path.stat().st_mode & 0o7777
                path.chmod(mode)

    return take


def _variables(**values: str) -> Oddity:
    return lambda scene: {
        name: value.replace("{scene}", str(scene.directory)) for name, value in values.items()
    }


def _renamed(name: str) -> Oddity:
    def rename(scene: Scene) -> dict[str, object]:
        place = scene.directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(scene.project, place, symlinks=True)
        return {"cwd": place, "TORCHENV_HOME": "(unset)", "changes-around": True}

    return rename


def _replaced(name: str, make: Callable[[Path], None]) -> Oddity:
    def replace(scene: Scene) -> dict[str, object]:
        path = scene.directory / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        make(path)
        return {"is-replaced": True}

    return replace


def _write(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(text, "utf-8")

    return write


def _deleted_cwd(scene: Scene) -> dict[str, object]:
    return {"cwd": scene.directory, "prefix": 'sh -c d=$(mktemp\\ -d);cd\\ $d;rmdir\\ $d;exec\\ "$0"\\ "$@"'}


WORKSPACE = "project/.torchenv"
ODDITIES: dict[str, Oddity] = {
    "no right to the workspace": _without(WORKSPACE),
    "no right to write in the workspace": _without(WORKSPACE, mode=0o555),
    "no right to search the workspace": _without(WORKSPACE, mode=0o444),
    "no right to the manifest": _without(f"{WORKSPACE}/manifest.toml"),
    "no right to the last good manifest": _without(f"{WORKSPACE}/manifest.toml.last-good"),
    "no right to envs": _without(f"{WORKSPACE}/envs"),
    "no right to locks": _without(f"{WORKSPACE}/locks"),
    "no right to plans and fingerprints": _without(f"{WORKSPACE}/plans", f"{WORKSPACE}/fingerprints"),
    "no right to the lock": _without(f"{WORKSPACE}/lock"),
    "no right to the home": _without("home"),
    "no right to write in the home": _without("home", mode=0o555),
    "no right to the cache": _without("cache"),
    "no right to write in the cache": _without("cache", mode=0o555),
    "no right to TMPDIR": _without("scratch"),
    "no right to write in the project": _without("project", mode=0o555),
    "no right to the profile": _without("project/torchenv.toml"),
    "no right to .venv": _without("project/.venv"),
    "no right to .venv's settings": _without("project/.venv/pyvenv.cfg"),
    "no right to the runs": _without("project/runs"),
    "no right to a save": _without("project/runs/run-1/step-200"),
    "no right to .git": _without("project/.git"),
    "the home of root": _variables(HOME="{scene}/locked"),
    "a home that is missing": _variables(HOME="/nonexistent/home"),
    "no home": _variables(HOME="(unset)"),
    "an empty HOME": _variables(HOME=""),
    "a relative HOME": _variables(HOME="home"),
    "XDG folders that may not be read": _variables(
        XDG_CONFIG_HOME="{scene}/locked/config",
        XDG_STATE_HOME="{scene}/locked/state",
        XDG_CACHE_HOME="{scene}/locked/cache",
    ),
    "a TMPDIR that is missing": _variables(TMPDIR="/nonexistent"),
    "a TMPDIR that runs nothing and takes nothing": _variables(TMPDIR="/proc"),
    "a cache in /proc": _variables(UV_CACHE_DIR="/proc/cache"),
    "an empty PATH": _variables(PATH=""),
    "a PATH of what may not be searched": _variables(PATH="{scene}/locked/bin:{scene}/nothing:/usr/bin:/bin"),
    "a catalogue that may not be read": _variables(TORCHENV_CATALOGUE="{scene}/locked/catalogue.toml"),
    "a workspace that may not be read": _variables(TORCHENV_HOME="{scene}/locked/workspace"),
    "a workspace below a file": _variables(TORCHENV_HOME="{scene}/around/file-0/workspace"),
    "a workspace in /proc": _variables(TORCHENV_HOME="/proc/workspace"),
    "a workspace that is the user's folder": _variables(TORCHENV_HOME="{scene}/around"),
    "a name with spaces and quotes": _renamed("a \"name\" with 'quotes' $HOME `id`"),
    "a name with a newline": _renamed("new\nline"),
    "a name with a colon": _renamed("co:lon"),
    "a name of another script": _renamed("проект-プロジェクト"),
    "a name that is no UTF-8": _renamed(os.fsdecode(b"na\xffme")),
    "a name that begins with a dash": _renamed("--root"),
    "a long name": _renamed("/".join(["n" * 200] * 5)),
    "the C locale": _variables(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"),
    "a manifest that is a directory": _replaced(f"{WORKSPACE}/manifest.toml", Path.mkdir),
    "a workspace that is a file": _replaced(WORKSPACE, _write("notes\n")),
    "a profile that is a directory": _replaced("project/torchenv.toml", Path.mkdir),
    "a .venv that is a file": _replaced("project/.venv", _write("notes\n")),
    "a .git that is a file": _replaced("project/.git", _write("gitdir: ../locked/git\n")),
    "a .git that is a loop": _replaced("project/.git", lambda path: path.symlink_to(path.name)),
    "a profile that is a loop": _replaced("project/torchenv.toml", lambda path: path.symlink_to(path.name)),
    "a workspace that is a loop": _replaced(WORKSPACE, lambda path: path.symlink_to(path.name)),
    "few open files": lambda _: {"prefix": "prlimit --nofile=40:40"},
    "no large files": lambda _: {"prefix": "prlimit --fsize=4096:4096"},
}
