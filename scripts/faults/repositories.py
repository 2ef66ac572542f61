"""Repositories that mean harm to whoever types a command in them."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

from scripts.faults.scene import Scene, refuse_changes
from scripts.faults.tally import Tally, require
from tests.support.index import serving
from tests.support.world import world

COMMANDS = (
    ("status",),
    ("list", "--json"),
    ("show", "1", "--json"),
    ("plan", "2.15", "--backend", "cpu"),
    ("create", "2.15", "--backend", "cpu", "--dry-run"),
    ("lock", "--dry-run"),
    ("lock", "--check"),
    ("use", "1", "--force"),
    ("rollback",),
    ("remove", "99"),
    ("remove", "1", "--force", "--offline"),
    ("prune", "--offline"),
    ("restore", "1"),
    ("sync", "--dry-run"),
    ("verify", "1"),
    ("activate", "1"),
    ("run", "-e", "1", "--", "python", "-c", "1"),
    ("checkpoints", "scan"),
    ("checkpoints", "show"),
    ("checkpoints", "verify"),
    ("probe", "--json"),
    ("report",),
    ("create", "2.15", "--backend", "cu132"),
)


def run_repositories(directory: Path, tries: int, seed: int) -> Tally:
    """Type commands in repositories that mean harm, one kind or two of it in each."""
    chance, tally = random.Random(seed), Tally("hostile repositories", seed)
    with serving(world()) as index:
        scene = Scene(directory, index).make()
        # Nobody named the workspace: it is what the upward search finds.
        del scene.environ["TORCHENV_HOME"]
        subprocess.run(["cp", "-a", str(scene.project), str(directory / "whole")], check=True)
        (directory / "hooks").mkdir()
        for n in range(tries):
            chosen = [list(HARMS)[n % len(HARMS)]]
            if n >= len(HARMS):
                chosen.append(chance.choice(list(HARMS)))
            with tally.trying(chosen[0], f"try {n} of seed {seed}: {' and '.join(chosen)}"):
                _try(scene, chosen, chance)
    tally.notes.append(f"{len(COMMANDS) // 2} commands in each")
    return tally


def _try(scene: Scene, harms: list[str], chance: random.Random) -> None:
    shutil.rmtree(scene.project)
    subprocess.run(["cp", "-a", str(scene.directory / "whole"), str(scene.project)], check=True)
    _canary(scene).unlink(missing_ok=True)
    for harm in harms:
        HARMS[harm](scene)
    keep = scene.digest()
    around = {path: digest for path, digest in keep.items() if not path.startswith(str(scene.project))}
    for words in chance.sample(COMMANDS, len(COMMANDS) // 2):
        ended = scene.run(*words)
        ended.refuse_defect()
        now = {
            path: digest for path, digest in scene.digest().items() if not path.startswith(str(scene.project))
        }
        refuse_changes(around, now, f"by `torchenv {' '.join(words)}`")
        require(not _canary(scene).exists(), f"`torchenv {' '.join(words)}` ran what the repository holds")


def _canary(scene: Scene) -> Path:
    return scene.directory / "hooks" / "ran"


def _write_program(path: Path, scene: Scene) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\ntouch '{_canary(scene)}'\necho 'Python 3.12.0'\n", "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


Harm = Callable[[Scene], None]


def _link(name: str, target: str) -> Harm:
    def link(scene: Scene) -> None:
        path = scene.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.symlink_to(scene.directory / target)

    return link


def _edit(*pairs: tuple[str, str]) -> Harm:
    def edit(scene: Scene) -> None:
        path = scene.root / "manifest.toml"
        text = path.read_text("utf-8")
        for old, new in pairs:
            text = text.replace(old, new.replace("{around}", str(scene.around)))
        path.write_text(text, "utf-8")

    return edit


def _add(text: str, name: str = "project/torchenv.toml") -> Harm:
    def add(scene: Scene) -> None:
        path = scene.directory / name
        before = path.read_text("utf-8") if path.is_file() else ""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(before + text.replace("{around}", str(scene.around)), "utf-8")

    return add


def _under_version_control(scene: Scene) -> None:
    shutil.rmtree(scene.project / ".git")
    _git(scene, "init", "-q")
    _git(scene, "add", "-f", ".torchenv/manifest.toml")


def _split_index(scene: Scene) -> None:
    _under_version_control(scene)
    _git(scene, "update-index", "--split-index")


def _git(scene: Scene, *words: str) -> None:
    environ = {**os.environ, "HOME": "/nonexistent"}
    subprocess.run(["git", "-C", str(scene.project), *words], check=True, capture_output=True, env=environ)


def _canary_python(*names: str) -> Harm:
    def put(scene: Scene) -> None:
        # One's own environment is run from when that is asked for.
        _under_version_control(scene)
        for name in names:
            _write_program(scene.project / name, scene)

    return put


def _canary_in_environments(scene: Scene) -> None:
    _under_version_control(scene)
    for path in (scene.root / "envs").glob("*/bin/python*"):
        _write_program(path, scene)


def _names(scene: Scene) -> None:
    run = scene.project / "runs" / "\x1b[31mrun\x07\n"
    shutil.copytree(scene.project / scene.newest_run, run)


def _deep_host(scene: Scene) -> None:
    (scene.root / "checkpoints.json").write_text("[" * 200_000, "utf-8")
    (scene.root / "index-answers.json").write_text(json.dumps({"schema": "x", "answers": [[]]}), "utf-8")


_HERE = 'path = "'
HARMS: dict[str, Harm] = {
    **{
        f"{name} that leads out": _link(name, "around")
        for name in ("trash", "envs", "kept", "logs", "locks", "plans", "fingerprints", "building", "reserve")
    },
    **{
        f"{name} that is a link": _link(name, "around/file-0")
        for name in ("lock", "lease", "manifest.toml.last-good", "checkpoints.json", "written", "identity")
    },
    "manifest.toml.new that is a link": _link("manifest.toml.new", "around/file-0"),
    "current.new that is a link": _link("current.new", "around"),
    "paths elsewhere": _edit((_HERE, 'path = "{around}/')),
    "environments in the user's folder": _edit(("/.torchenv/envs", "/../around")),
    "an unfinished environment elsewhere": _edit(
        ('state = "ready"', 'state = "building"'), (_HERE, 'path = "{around}/')
    ),
    "names that lead out": _edit(('name = "2', 'name = "../../../around/2')),
    "names that act on a terminal": _edit(('backend = "', 'backend = "\\u001b[31m')),
    "variables that a shell runs": _edit(
        ("[[switch]]", '[[environment.activation]]\nset = { "a$(id)" = "1" }\n[[switch]]')
    ),
    "under version control": _under_version_control,
    "under version control in a split index": _split_index,
    "programs in .venv": _canary_python(".venv/bin/python", ".venv/bin/python3", ".venv/bin/python3.11"),
    "programs in the environments": _canary_in_environments,
    "programs beside": _canary_python("uv", "nvidia-smi", "python3", "git", "bin/python3", "rocminfo"),
    "a sitecustomize": _add(
        "import pathlib; pathlib.Path('{around}/../hooks/ran').touch()\n", "project/sitecustomize.py"
    ),
    "modules of torchenv's names": _add(
        "import pathlib; pathlib.Path('{around}/../hooks/ran').touch()\n", "project/packaging.py"
    ),
    "a target that leads out": _add(
        '\n[[target]]\nname = "../../around/file-0"\nplatform = "linux-x86_64"\n'
    ),
    "files that lead out": _add("\n[packages]\nfrom = ['/etc/shadow', '../around/private']\n"),
    "an editable elsewhere": _add("\n[packages]\neditable = ['../around']\n"),
    "a catalogue that moves the index": _add(
        'schema = 1\n[index]\ntorch = "http://127.0.0.1:9/whl"\n', "project/.torchenv/catalogue.toml"
    ),
    "a tie that leads out": _add(
        'schema = 1\n[target."../../around/file-0"]\ndigest = "sha256:0"\n', "project/torchenv.lock.toml"
    ),
    "a lock of files": _add(
        'lock-version = "1.0"\n[[packages]]\nname = "torch"\nversion = "1"\n', "project/pylock.ci.toml"
    ),
    "an index with a login": _add(
        '\n[[index.private]]\nurl = "http://a:b@127.0.0.1:9/simple"\npackages = ["x"]\n'
    ),
    "smoke commands": _add("\n[smoke]\ncommands = [['touch', '{around}/../hooks/ran']]\n"),
    "names of runs that act on a terminal": _names,
    "deep documents": _deep_host,
    "a pyproject that builds": _add(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        "[project]\nname = 'x'\nversion = '1'\n",
        "project/pyproject.toml",
    ),
}
