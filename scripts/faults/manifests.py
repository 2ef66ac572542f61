"""Manifests whose bytes are not what torchenv wrote."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.faults.scene import Ended, digest_of, refuse_changes
from scripts.faults.tally import Broken, Tally, require
from tests.support.workspace import Workspace

from torchenv.cli import main
from torchenv.workspace.records import Kept, Run

_READING = (("list", "--json"), ("status",), ("show", "2", "--json"), ("history",))
_WRITING = (
    ("rollback",),
    ("use", "1", "--force"),
    ("remove", "1", "--offline"),
    ("prune", "--offline"),
    ("adopt", "../.venv"),
    ("checkpoints", "scan"),
)

# What no key of the manifest holds in a file that torchenv wrote.
WRONG: tuple[Any, ...] = (
    *(0, -1, 1, 2**63 - 1, -(2**63), True, 0.5, float("nan"), ""),
    *("/", "..", "../../around", "/../../around/file-0", "a\nb", "\x1b[31m", "$(touch ran)", "é" * 5000),
    *([], [[]], [{}], {}, {"a": {"b": []}}),
)


class _Place:
    """A workspace that is put back after each try, and what lies around it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.around = directory / "around"
        self.around.mkdir()
        for n in range(5):
            (self.around / f"file-{n}").write_text(f"{n}\n" * 50, "utf-8")
        workspace = Workspace(directory)
        workspace.adopted(directory / ".venv")
        workspace.built()
        workspace.built("2.14.1+cu130", packages={"numpy": "2.3.0"})
        self.root = workspace.store.root
        self.home = directory / "home"
        self.home.mkdir()
        for number in ("3", "2"):
            self.type("use", number, "--force")
        store = workspace.store
        with store.hold("a scan"):
            manifest = store.read().record_runs(
                [Run(path="runs/a", newest="step-2", newest_readable={2: "step-1"})]
            )
            store.write(
                manifest.keep(Kept(path="runs/a/step-1", readable_by=(1, 2), digest="sha256:" + "0" * 64))
            )
        self.manifest = self.root / "manifest.toml"
        self.text = self.manifest.read_text("utf-8")
        self.whole = directory / "whole"
        shutil.copytree(self.root, self.whole, symlinks=True)
        self.outside = self.digest()

    def digest(self) -> dict[str, str]:
        return digest_of((self.around, self.directory / ".venv"), ())

    def type(self, *words: str) -> Ended:
        out, err = io.StringIO(), io.StringIO()
        environ = {
            "PATH": os.defpath,
            "HOME": str(self.home),
            "TORCHENV_HOME": str(self.root),
            "TMPDIR": str(self.home),
        }
        code = main(words, environ, self.around, io.StringIO(), out, err)
        return Ended(words, code, out.getvalue(), err.getvalue(), 0.0)

    def put_back(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.whole, self.root, symlinks=True)


def run_manifests(directory: Path, tries: int, seed: int) -> Tally:
    """Cut the manifest at each offset, flip `tries` bytes, and put wrong values for each key."""
    chance, tally = random.Random(seed), Tally("manifest", seed)
    place = _Place(directory)
    content = place.text.encode()
    # In the tests only some of them.
    step = max(1, 30_000 // max(tries, 1))
    for offset in range(0, len(content), step):
        with tally.trying("cut", f"cut at {offset}"):
            _try_cut(place, content, offset)
    for n in range(tries):
        offset, byte = chance.randrange(len(content)), chance.randrange(1, 256)
        changed = bytearray(content)
        changed[offset] ^= byte
        with tally.trying("flipped", f"flip {n} of seed {seed}: byte {offset} by {byte}"):
            _try(place, bytes(changed), chance, is_writing=n % 20 == 0)
    for name, text in _list_wrong(place.text, chance, tries):
        with tally.trying("wrong values", name):
            _try(place, text.encode("utf-8", "surrogateescape"), chance, is_writing=True)
    return tally


def _try_cut(place: _Place, content: bytes, offset: int) -> None:
    place.manifest.write_bytes(content[:offset])
    ended = place.type("list", "--json")
    ended.refuse_defect()
    is_whole = content[:offset].rstrip() == content.rstrip()
    require(ended.code == (0 if is_whole else 5), f"a manifest without its end is read: {ended.code}")
    place.manifest.write_bytes(content)


def _try(place: _Place, content: bytes, chance: random.Random, *, is_writing: bool) -> None:
    place.manifest.write_bytes(content)
    ended = place.type(*chance.choice(_READING))
    ended.refuse_defect()
    if "--json" in ended.words:
        try:
            json.loads(ended.out)
        except ValueError:
            raise Broken(
                f"`torchenv {' '.join(ended.words)}` printed not one document: {ended.out[:200]}"
            ) from None
    require(place.manifest.read_bytes() == content, "a command that reads has written")
    if is_writing:
        for words in (chance.choice(_WRITING), ("rollback",)):
            place.type(*words).refuse_defect()
        refuse_changes(place.outside, place.digest())
        require(not (place.around / "ran").exists(), "what the manifest holds was run")
        place.put_back()
    place.manifest.write_bytes(place.text.encode())


def _list_wrong(text: str, chance: random.Random, tries: int) -> Iterator[tuple[str, str]]:
    document = tomllib.loads(text)
    found = [
        (path, value) for path in _list_keys(document) for value in WRONG if value != _find(document, path)
    ]
    if tries < 30_000:
        found = chance.sample(found, min(len(found), max(10, tries // 5)))
    for path, value in found:
        yield f"{'.'.join(map(str, path))} = {value!r}"[:80], _write(document, path, value)


def _list_keys(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _list_keys(inner, (*path, key))


def _find(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _write(document: dict[str, Any], path: tuple[str | int, ...], value: Any) -> str:
    import tomlkit

    copied = json.loads(json.dumps(document, default=lambda moment: f"\0{moment.isoformat()}"))
    _find(copied, path[:-1])[path[-1]] = value
    body = tomlkit.dumps(_restore_times(copied))
    return f"{body}\n# end\n"


def _restore_times(value: Any) -> Any:
    from datetime import datetime

    if isinstance(value, dict):
        return {key: _restore_times(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_restore_times(inner) for inner in value]
    is_time = isinstance(value, str) and value.startswith("\0")
    return datetime.fromisoformat(value[1:]) if is_time else value
