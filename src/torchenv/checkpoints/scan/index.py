"""What a scan found, folder by folder, and the side file that keeps it: a scan can always make it again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from torchenv import __version__
from torchenv.catalogue.resources import DATA
from torchenv.checkpoints.readability import FILE
from torchenv.checkpoints.values import Checkpoint, CheckpointNote, Format, Range, Reader, State
from torchenv.storage import Folder
from torchenv.storage.names import LAYOUTS

SCHEMA = "torchenv.checkpoint-index/3"


class Found(NamedTuple):
    """One checkpoint of the index; `reader` is the number of what is known of its readers."""

    name: str  # of the file in its folder; "" where the folder as a whole is the checkpoint
    format: Format
    state: State
    problems: list[list[str]]  # code and message of each
    reader: int
    tensors: int | None
    bytes: int
    foreign: list[str]


@dataclass(slots=True)
class ScannedFolder:
    """A folder as it was, the checkpoints that were in it, and what its pointer files held."""

    folder: Folder
    found: list[Found]
    pointers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ScanIndex:
    """All that scans found, by root and then by the address of each folder.

    Thousands of checkpoints have a handful of readers between them, so each is there once.
    """

    readers: list[Reader] = field(default_factory=list)
    roots: dict[str, dict[str, ScannedFolder]] = field(default_factory=dict)
    read: int = 0  # folders whose checkpoints had to be read anew
    # Addresses of torchenv's own copies, and how it made each.
    copies: dict[str, str] = field(default_factory=dict)
    # What lies beside a root that is itself a save: its writer may call it unfinished there.
    beside: dict[str, ScannedFolder] = field(default_factory=dict)
    _numbers: dict[Reader, int] = field(default_factory=dict)

    def without_roots(self) -> ScanIndex:
        """Return an index that holds no checkpoint yet and numbers the readers as this one does."""
        return ScanIndex(list(self.readers), copies=self.copies, _numbers=dict(self._numbers))

    def add(self, checkpoint: Checkpoint, name: str) -> Found:
        """Put what is known of a checkpoint into the form of the index."""
        return Found(
            name=name,
            format=checkpoint.format,
            state=checkpoint.state,
            problems=[[note.code, note.message] for note in checkpoint.problems],
            reader=self.number(checkpoint.reader),
            tensors=checkpoint.tensors,
            bytes=checkpoint.bytes,
            foreign=list(checkpoint.foreign),
        )

    def number(self, reader: Reader) -> int:
        """Return the number by which the index has what is known of the readers."""
        number = self._numbers.get(reader)
        if number is None:
            number = self._numbers[reader] = len(self.readers)
            self.readers.append(reader)
        return number

    def checkpoint(self, address: str, found: Found) -> Checkpoint:
        """Return the checkpoint that the index tells of."""
        return Checkpoint(
            path=address,
            format=found.format,
            state=found.state,
            problems=tuple(CheckpointNote(*problem) for problem in found.problems),
            reader=self.readers[found.reader],
            tensors=found.tensors,
            bytes=found.bytes,
            foreign=tuple(found.foreign),
        )

    def __iter__(self) -> Iterator[tuple[str, str, ScannedFolder, Found]]:
        """Yield root, address of the folder, folder and checkpoint, for every checkpoint."""
        for root, seen in self.roots.items():
            for address, scanned in seen.items():
                for found in scanned.found:
                    yield root, address, scanned, found

    def to_json(self) -> str:
        """Write the side file."""
        document = {
            "schema": SCHEMA,
            "made-by": maker(),
            "readers": [reader.as_record() for reader in self.readers],
            "roots": {
                root: {
                    address: [
                        scanned.folder.changed,
                        scanned.folder.files,
                        scanned.folder.folders,
                        scanned.folder.links,
                        scanned.found,
                        scanned.pointers,
                    ]
                    for address, scanned in seen.items()
                }
                for root, seen in self.roots.items()
            },
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ScanIndex | None:
        """Read the side file; None where it is not what this torchenv writes: then all is looked at anew."""
        try:
            document = json.loads(text)
            if document["schema"] != SCHEMA or document["made-by"] != maker():
                return None
            readers = [_reader(item) for item in document["readers"]]
            roots = {
                root: {
                    address: ScannedFolder(
                        Folder(changed, files, folders, links),
                        [Found(*found_item) for found_item in found],
                        pointers,
                    )
                    for address, (changed, files, folders, links, found, pointers) in seen.items()
                }
                for root, seen in document["roots"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return cls(readers, roots, _numbers={reader: number for number, reader in enumerate(readers)})


@cache
def maker() -> str:
    """Name what made an index: with other rules, the verdicts would be others."""
    rules = b"".join((DATA / name).read_bytes() for name in (FILE, LAYOUTS))
    return f"torchenv {__version__}, rules {hashlib.sha256(rules).hexdigest()[:16]}"


def _reader(told: Mapping[str, Any]) -> Reader:
    restricted = told["weights_only"]
    return Reader(
        torch=_range(told),
        python_min=told["python_min"],
        system=told["system"],
        weights_only=None if restricted is None else _range(restricted),
        ranks_min=told["ranks_min"],
        nobody=told["nobody"],
        certainty=told["certainty"],
        because=tuple(CheckpointNote(note["code"], note["message"]) for note in told["because"]),
        allow=tuple(told["allow"]),
        packages=tuple((name, version) for name, version in told["packages"]),
        imports=tuple(told["imports"]),
    )


def _range(told: Mapping[str, Any]) -> Range:
    return Range(oldest=told["torch_min"], newest=told["torch_max"])
