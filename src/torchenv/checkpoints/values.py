"""What is known of one checkpoint, and who can read it: the values of `torchenv.checkpoints/1`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any, Literal

from packaging.version import Version

from torchenv.system.values import frozen

Format = Literal["dcp", "hf", "torch-zip", "torch-legacy", "torchscript", "pt2", "safetensors", "unknown"]
State = Literal["complete", "incomplete", "corrupt", "writing"]
Certainty = Literal["confirmed", "inferred", "unknown"]

_SHOWN, _LONGEST = 5, 200  # names in one message, characters of each
_NAMED = 100  # numbers that are not there
_POWERFUL = frozenset({"__builtin__", "numpy", "torch", "torchenv"})
_RESTRICTED_SINCE = (2, 6)  # torch.load's default became weights_only=True


@frozen
class CheckpointNote:
    """Something that was seen: a problem, or a reason."""

    code: str
    message: str

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message}


@frozen(kw_only=True)
class Range:
    """Releases of torch, by minor version: from `oldest` to `newest`, both included."""

    oldest: str | None = None
    newest: str | None = None

    def __contains__(self, torch: str) -> bool:
        release = Version(torch).release[:2]
        if self.oldest is not None and release < Version(self.oldest).release:
            return False
        return self.newest is None or release <= Version(self.newest).release


ANY = Range()


@frozen(kw_only=True)
class Reader:
    """Who can read a checkpoint.

    `nobody` stands for a file that no release reads back. `weights_only` is for `torch.load`, whose
    default refuses what is outside of it from 2.6 on; None means that it is refused everywhere.
    """

    torch: Range = ANY
    python_min: str | None = None
    system: str | None = None
    weights_only: Range | None = ANY
    ranks_min: int = 1
    nobody: bool = False
    certainty: Certainty = "confirmed"
    because: tuple[CheckpointNote, ...] = ()
    allow: tuple[str, ...] = ()  # names of the file that torch.load's default does not open
    packages: tuple[tuple[str, str], ...] = ()  # other packages that it needs, with their versions
    imports: tuple[str, ...] = ()  # modules that torch.load's default wants imported before

    def needs_code(self, torch: str) -> bool:
        """Return whether a torch that reads it does so only with `weights_only=False`, an import or names."""
        if Version(torch).release[:2] < _RESTRICTED_SINCE:
            return False
        return bool(self.imports) or self.weights_only is None or torch not in self.weights_only

    def reads(self, torch: str, python: str | None = None, system: str | None = None) -> bool | None:
        """Return whether this torch, on this Python and system, reads it; None: that is not known.

        What is not told (`python`, `system`) is taken to suit.
        """
        if self.nobody or torch not in self.torch:
            return False
        if python and self.python_min and Version(python) < Version(self.python_min):
            return False
        if system and self.system and system != self.system:
            return False
        return None if self.certainty == "unknown" else True

    def as_json(self) -> dict[str, Any]:
        """Return the reader of the `torchenv.checkpoints/1` document.

        `weights_only` says whether `weights_only=True` loads it, in the newest torch that was measured;
        it is null where that is not known.
        """
        newest = self.weights_only.newest if self.weights_only else None
        opens = self.weights_only is not None and newest is None
        return {
            **self.as_record(),
            "weights_only": None if self.certainty == "unknown" else opens,
            "packages": dict(self.packages),
        }

    def as_record(self) -> dict[str, Any]:
        """Return all fields, as the index keeps them."""
        weights_only = self.weights_only
        return {
            "torch_min": self.torch.oldest,
            "torch_max": self.torch.newest,
            "python_min": self.python_min,
            "system": self.system,
            "weights_only": weights_only
            and {"torch_min": weights_only.oldest, "torch_max": weights_only.newest},
            "ranks_min": self.ranks_min,
            "nobody": self.nobody,
            "certainty": self.certainty,
            "because": [note.as_json() for note in self.because],
            "allow": list(self.allow),
            "packages": [list(package) for package in self.packages],
            "imports": list(self.imports),
        }


@frozen(kw_only=True)
class Checkpoint:
    """One checkpoint as its own bytes tell it; a scan adds its run, step and environments."""

    path: str
    format: Format
    state: State
    problems: tuple[CheckpointNote, ...] = ()
    reader: Reader
    tensors: int | None = None
    bytes: int = 0
    foreign: tuple[str, ...] = ()  # names that no release writes and that could run code

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "format": self.format,
            "state": self.state,
            "problems": [note.as_json() for note in self.problems],
            "reader": self.reader.as_json(),
            "tensors": self.tensors,
            "bytes": self.bytes,
            "foreign": list(self.foreign),
        }


def describe_state(state: State) -> str:
    """Return the words for a state, which follow `is`."""
    return "being written" if state == "writing" else state


def runs_code(name: str) -> bool:
    """Return whether a foreign name is of Python's own or torch's modules, whose functions can do anything.

    Any other is taken for a class of the user's own or of a package: not known, and no fault of the file.
    """
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names or top in _POWERFUL


def foreign_names(names: Iterable[object]) -> CheckpointNote:
    """Describe that names were found which could run code, and that nothing was opened."""
    message = f"it would import names that no release writes, which could run code: {some(names)}"
    return CheckpointNote("foreign-names", f"{message}; not opened")


def gaps(numbers: Collection[int], wanted: range) -> list[int]:
    """Return the first of the wanted numbers that are not there: a name may ask for billions."""
    there = set(numbers)
    return list(islice((number for number in wanted if number not in there), _NAMED))


def some(names: Iterable[object]) -> str:
    """Write the first of some names from an untrusted file, and how many more there are."""
    written = [escape_name(str(name)) for name in names]
    more = f" and {len(written) - _SHOWN} more" if len(written) > _SHOWN else ""
    return ", ".join(written[:_SHOWN]) + more


def escape_name(name: str) -> str:
    """Write a name from an untrusted file so that it cannot act on a terminal."""
    name = name if len(name) <= _LONGEST else name[: _LONGEST - 3] + "..."
    return name if name.isprintable() else ascii(name)
