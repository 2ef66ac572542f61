"""Let a training write checkpoints that an older torch reads, without changing its torch."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path, PurePath

from packaging.version import InvalidVersion, Version

from torchenv.actions.checkpoints import read_index
from torchenv.actions.downgrade import DowngradeTarget
from torchenv.checkpoints.readability import rules
from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.scan.runs import Part, needs_plain_path, runs_of
from torchenv.environment.inspect import describe
from torchenv.environment.startup import STARTUP_FILE
from torchenv.errors import InputError, NothingSuits, TorchenvError
from torchenv.storage import place
from torchenv.system.garbage import no_garbage_collection
from torchenv.system.values import frozen
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store

HOOK = Path(__file__).parent.parent / "guest" / "write_for"

# Both 2.14.1 and the release itself were seen to read what these write so (tests/real/test_checkpoints.py).
TESTED = ("2.15.0",)

# The clock of a file server may be this many seconds behind.
_SKEW = 2.0


@frozen(kw_only=True)
class WriteFor:
    """The variables that turn it on for a whole process tree, and what to tell; none where none is needed."""

    variables: Mapping[str, str] = field(default_factory=dict)
    says: str


def write_for(target: str, environment: Environment, *, force: bool = False) -> WriteFor:
    """Settle how the torch of an environment is made to write for an older one.

    Raises `InputError` for what is no version, `NothingSuits` where torch was not tested with it, or the
    older one would not read it all the same.
    """
    try:
        older = Version(target)
    except InvalidVersion:
        raise InputError(f"`{target}` is not a version of torch", hint="write --write-for 2.14") from None
    if environment.torch is None:
        raise NothingSuits(f"environment {environment} has no torch")
    features = rules().features
    strides, floor = features["dcp-strides"].torch_min, features["dcp-storage-meta"].torch_min
    assert strides is not None
    assert floor is not None
    torch = Version(environment.torch)
    variables = {
        "TORCHENV_WRITE_FOR": target,
        "TORCHENV_WRITE_FOR_TESTED": "any" if force else ",".join(TESTED),
    }
    writes_strides = torch.release[:2] >= Version(strides).release[:2]
    if writes_strides and older.release[:2] < Version(floor).release[:2]:
        said = f"torch {target} does not read what torch {torch} writes, with strides or without"
        raise NothingSuits(f"{said}: {features['dcp-storage-meta'].message}")
    if not writes_strides or older.release[:2] >= Version(strides).release[:2]:
        if (
            not needs_plain_path(environment.python.version)
            and torch.release[:2] >= Version(floor).release[:2]
        ):
            return WriteFor(
                variables=variables,
                says=f"distributed checkpoints are written for torch {target} on any Python",
            )
        if not writes_strides:
            return WriteFor(says=f"torch {torch} writes no strides: nothing is changed for torch {target}")
        return WriteFor(says=f"torch {target} reads what {torch} writes: nothing is changed")
    if torch.public not in TESTED and not force:
        hint = "use it anyway with --force, and check the first checkpoint before you rely on it"
        raise NothingSuits(f"writing for torch {target} was not tested with torch {torch.public}", hint=hint)
    return WriteFor(
        variables=variables,
        says=f"distributed checkpoints are written for torch {target} here: without strides",
    )


def hook_variables(environ: Mapping[str, str], directory: Path, written: Path | None) -> dict[str, str]:
    """Return the variables through which every Python below a run finds the hook, in front of the user's own.

    `directory` is that of the environment, `written` the file that notes where checkpoints were written.
    """
    variables = {"TORCHENV_HOOK": str(HOOK / "sitecustomize.py")}
    if not has_startup_file(directory):
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HOOK), environ.get("PYTHONPATH")]))
    if written is not None:
        variables["TORCHENV_WRITTEN"] = str(written)
    return variables


def has_startup_file(directory: Path) -> bool:
    """Whether an environment carries the dormant start-up file of those that torchenv builds."""
    try:
        return any(os.path.isfile(site / STARTUP_FILE) for site in describe(directory).site_packages)
    except TorchenvError:
        return False


def refuse_lost_hook(words: Sequence[str], *, has_startup: bool) -> None:
    """Raise `NothingSuits` for a command whose Python would not run the hook: saves would be in the new form.

    `has_startup`: the environment's own start-up file leads to it, and PYTHONPATH is not needed.
    """
    why = next(_find_losses(words, has_startup=has_startup), None)
    if why is not None:
        hint = "run the command without that"
        if not has_startup:
            hint += ", or in an environment that torchenv built (`torchenv create`)"
        raise NothingSuits(f"--write-for would be lost: {why}", hint=hint)


def _find_losses(words: Sequence[str], *, has_startup: bool) -> Iterator[str]:
    for at, word in enumerate(words):
        name = PurePath(word).name
        rest = list(words[at + 1 :])
        if word.startswith("PYTHONPATH=") and not has_startup and "$" not in word:
            yield f"`{word}` replaces the path that it needs"
        elif name == "env":
            if rest[:1] and rest[0] in ("-", "-i", "--ignore-environment"):
                yield f"`env {rest[0]}` clears the variables that it needs"
        elif _PYTHON.fullmatch(name):
            flags = "".join(_take_flags(rest))
            for flag in "S" if has_startup else "SIE":
                if flag in flags:
                    yield f"`{name} -{flag}` ignores it"
        elif word.strip() != word or " " in word:
            # What a shell runs: sh -c 'PYTHONPATH=src python train.py'
            try:
                inner = shlex.split(word)
            except ValueError:
                continue
            yield from _find_losses(inner, has_startup=has_startup)


_PYTHON = re.compile(r"python[\d.]*t?(\.exe)?")


def _take_flags(words: Sequence[str]) -> Iterator[str]:
    """Yield the letters of Python's own options; what follows belongs to the program."""
    words = list(words)
    while words and words[0].startswith("-") and not words[0].startswith("--") and len(words[0]) > 1:
        word = words.pop(0)[1:]
        # -c and -m end the options; -W and -X take the next word, or the rest of their own.
        for at, letter in enumerate(word):
            if letter in "cm":
                return
            if letter in "WX":
                if at == len(word) - 1 and words:
                    words.pop(0)
                break
            yield letter


@frozen
class WrittenInNewForm:
    """A save that the run wrote and that the older torch cannot read, with the reasons."""

    path: str
    reasons: tuple[str, ...]


def find_new_form(
    roots: Sequence[str], store: Store, target: DowngradeTarget, since: float
) -> tuple[WrittenInNewForm, ...]:
    """Return what was saved below `roots` since a moment (seconds since 1970) and the target cannot read."""
    with no_garbage_collection():
        places = [place(root) for root in roots if os.path.exists(Path(root))]
        index = scan(places, read_index(store), lambda _: None)
        found: dict[str, WrittenInNewForm] = {}
        for run in runs_of(index, str):
            for save in run.saves:
                for part in save.parts:
                    reader = index.readers[part.found.reader]
                    if not _is_written_since(part, since):
                        continue
                    if reader.reads(target.torch, target.python, target.system) is False:
                        reasons = tuple(note.message for note in target.find_obstacles(reader))
                        found[part.path] = WrittenInNewForm(part.path, reasons)
        return tuple(found.values())


def _is_written_since(part: Part, since: float) -> bool:
    return part.complete and part.modification_ns >= (since - _SKEW) * 1e9
