"""Groups what a scan found into training runs and their saves, and judges who can read each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torchenv.checkpoints.layouts import layouts
from torchenv.checkpoints.readability import reader_after
from torchenv.checkpoints.scan.index import Found, ScanIndex, ScannedFolder
from torchenv.checkpoints.scan.unfinished import mark_being_written, mark_unfinished
from torchenv.checkpoints.steps import is_copy, original_of, parse_step_words, standing
from torchenv.checkpoints.values import Reader
from torchenv.storage import is_remote
from torchenv.workspace.records import Environment, Run

Verdict = Literal["readable", "readable-with-code", "unreadable", "unknown"]
# An environment reads these: the second only by `weights_only=False` or by names that are allowed.
READS: frozenset[Verdict] = frozenset({"readable", "readable-with-code"})
_NAMED = 10  # newer broken saves that the manifest names

# Returns the version that an environment has of a package, "" where it has none, None where it is not known.
FindPackage = Callable[[Environment, str], str | None]


class Part(NamedTuple):
    """One checkpoint of a save."""

    path: str
    seen: ScannedFolder
    found: Found

    @property
    def complete(self) -> bool:
        return self.found.state == "complete"

    @property
    def modification_ns(self) -> int:
        """When the newest of its files was changed, in nanoseconds; 0 where the place tells no times."""
        name = self.found.name
        files = self.seen.folder.files
        return files[name][1] if name in files else max((file[1] for file in files.values()), default=0)


@dataclass(slots=True)
class Save:
    """All that a run wrote at one step: `checkpoint-500` may hold a model, an optimizer and more."""

    path: str
    name: str
    step: int | None
    parts: list[Part] = field(default_factory=list)
    address: str = ""
    follows: int | None = None  # the step after which it was written, where its name tells none
    made: str = ""  # how torchenv made it, where it noted that: converted

    @property
    def complete(self) -> bool:
        return all(part.complete for part in self.parts)

    @property
    def being_written(self) -> bool:
        return any(part.found.state == "writing" for part in self.parts)

    @property
    def copy_kind(self) -> str:
        """How torchenv made it of another save; empty for what a training saved."""
        return self.made or ("downgraded" if is_copy(self.name) else "")

    @property
    def resumes(self) -> bool:
        """Whether a training goes on from it: it is complete, and in the form that its trainer wrote."""
        return self.complete and self.made != "converted"

    @property
    def order(self) -> tuple[int, int, str]:
        """What sorts the saves of a run, the oldest first; one without a step goes by its time.

        A copy comes before its original: what was saved is the newest, whoever reads it.
        """
        if self.step is not None:
            return (self.step, 0 if self.copy_kind else 1, self.name)
        if self.follows is not None:
            return (self.follows, 2 if self.copy_kind else 3, self.name)
        return (-1, self.modification_ns, self.name)

    @property
    def modification_ns(self) -> int:
        """When the newest of its files was changed, in nanoseconds; 0 where the place tells no times."""
        return max(part.modification_ns for part in self.parts)


@dataclass(slots=True)
class Saves:
    """One training run with its saves, the oldest first."""

    path: str
    saves: list[Save]

    @property
    def originals(self) -> list[Save]:
        """The saves of the training itself, or all where there are only copies by their names."""
        return [save for save in self.saves if not save.copy_kind] or [
            save for save in self.saves if not save.made
        ]


class Judge:
    """Says which environments read what; what thousands of checkpoints share is decided once."""

    def __init__(
        self,
        index: ScanIndex,
        environments: Iterable[Environment],
        system: str,
        find_package: FindPackage = lambda *_: None,
    ) -> None:
        self._find_package = find_package
        self._readers = index.readers
        self._system = system
        self._known: dict[tuple[int, int], Verdict] = {}
        self._copies: dict[tuple[int, int], bool] = {}
        self.environments = tuple(environment for environment in environments if environment.on_disk)

    def reader(self, found: Found) -> Reader:
        """Return what is known of a checkpoint's readers."""
        return self._readers[found.reader]

    def of(self, found: Found, environment: Environment) -> Verdict:
        """Judge one checkpoint; what is not complete is read by nobody."""
        if found.state != "complete":
            return "unreadable"
        key = (found.reader, environment.number)
        if key not in self._known:
            reader = self.reader(found)
            known = verdict(reader, environment, self._system)
            self._known[key] = (
                known if known == "unreadable" else self._judge_packages(reader, environment, known)
            )
        return self._known[key]

    def _judge_packages(self, reader: Reader, environment: Environment, known: Verdict) -> Verdict:
        """Judge by the other packages of an environment what is `known` by its torch."""
        for names, needed in reader.packages:
            has = self._has_package(environment, names, needed)
            if has is False:
                return "unreadable"
            if has is None and needed:
                known = "unknown"
        return known

    def _has_package(self, environment: Environment, names: str, needed: str) -> bool | None:
        # One of several packages is enough: zstandard or pyzstd.
        versions = [self._find_package(environment, name) for name in names.split(" or ")]
        if any(version and _is_within(version, needed) for version in versions):
            return True
        return None if None in versions else False

    def find_lacking(self, save: Save, environment: Environment) -> str | None:
        """Return the packages without which an environment, whose torch suits, cannot read a save."""
        numbers = dict.fromkeys(part.found.reader for part in save.parts)
        readers = [self._readers[number] for number in numbers]
        if any(verdict(reader, environment, self._system) == "unreadable" for reader in readers):
            return None
        packages = dict.fromkeys(package for reader in readers for package in reader.packages)
        lacking = [
            f"{names}{needed}"
            for names, needed in packages
            if self._has_package(environment, names, needed) is False
        ]
        return ", ".join(lacking) or None

    def of_save(self, save: Save, environment: Environment) -> Verdict:
        """Judge all that was saved at one step: no part may be unreadable, and one must be read.

        The hardest part counts, but that what holds classes of the user's own is no fault of the save.
        """
        verdicts = {self.of(part.found, environment) for part in save.parts}
        if "unreadable" in verdicts:
            return "unreadable"
        if any(
            self.of(part.found, environment) == "unknown"
            for part in save.parts
            if not part.found.foreign and part.found.format != "unknown"
        ):
            return "unknown"
        if "readable-with-code" in verdicts:
            return "readable-with-code"
        return "readable" if "readable" in verdicts else "unknown"

    def of_copy(self, save: Save, environment: Environment) -> bool:
        """Whether a save that an environment cannot read would be readable once it is downgraded."""
        unread = [part for part in save.parts if self.of(part.found, environment) == "unreadable"]
        return bool(unread) and all(self._copy_reads(part.found, environment) for part in unread)

    def _copy_reads(self, found: Found, environment: Environment) -> bool:
        if found.state != "complete" or found.format != "dcp":
            return False
        key = (found.reader, environment.number)
        if key not in self._copies:
            after = reader_after(
                self.reader(found), portable_path=needs_plain_path(environment.python.version)
            )
            self._copies[key] = verdict(after, environment, self._system) in READS
        return self._copies[key]


def _is_within(version: str, needed: str) -> bool:
    # 3 ms, which a rollback only pays where a save needs another package.
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(needed).contains(version, prereleases=True)


def verdict(reader: Reader, environment: Environment, system: str) -> Verdict:
    """Judge by torch, Python and system of an environment."""
    if environment.torch is None:
        return "unknown"
    reads = reader.reads(environment.torch, environment.python.version, system)
    if reads is None:
        return "unknown"
    if not reads:
        return "unreadable"
    return "readable-with-code" if reader.needs_code(environment.torch) else "readable"


def runs_of(index: ScanIndex, shown: Callable[[str], str]) -> list[Saves]:
    """Group into runs; `shown` gives the path by which the record names an address."""
    runs: dict[str, dict[str, Save]] = {}
    inner: list[tuple[str, Save]] = []  # what is no save by its own name, with the run that it was put in
    known = layouts()
    for root, seen in index.roots.items():
        # Strings, split and joined: a path object for each of thousands takes longer than the scan.
        between = "/" if is_remote(root) else os.sep
        first = root.count(between)
        for address, scanned in seen.items():
            for found in scanned.found:
                at = f"{address}{between}{found.name}" if found.name else address
                run, _, name = at.rpartition(between)
                path = at
                step = parse_step_words(name)
                is_inner = False
                # A save in a save of the same step is a part of it, as in checkpoint-9/global_step9.
                if step is None or parse_step_words(run.rpartition(between)[2]) == step:
                    parts = at.split(between)
                    last = len(parts) - 1
                    while last > first and known.is_inner(parts[last]):
                        last -= 1
                    where, step = standing(parts[: last + 1], first)
                    is_inner = step is None and last < len(parts) - 1
                    run, name = between.join(parts[:where]), parts[where]
                    path = between.join(parts[: where + 1])
                saves = runs.setdefault(run or between, {})
                save = saves.get(name)
                if save is None:
                    save = saves[name] = Save(shown(path), name, step, address=path)
                    if is_inner:
                        inner.append((run or between, save))
                save.parts.append(Part(shown(at), scanned, found))
    _join_inner(runs, inner, shown)
    _join_shared(runs)
    mark_unfinished(runs, index)
    mark_being_written(runs)
    _label_copies(runs, index)
    _join_copies(runs)
    _place_by_time(runs)
    grouped = [
        Saves(shown(run), sorted(saves.values(), key=lambda save: save.order)) for run, saves in runs.items()
    ]
    return sorted(grouped, key=lambda run: run.path)


def _join_inner(
    runs: dict[str, dict[str, Save]], inner: Iterable[tuple[str, Save]], shown: Callable[[str], str]
) -> None:
    """Make final/model.safetensors and final/optimizer.bin one save.

    An optimizer.pt beside step-100 stays a save by itself.
    """
    for run, save in inner:
        beside = runs.get(save.address)
        if beside is None:
            continue
        if all(other.step is None for other in beside.values()):
            for other in runs.pop(save.address).values():
                save.parts += other.parts
            continue
        del runs[run][save.name]
        if not runs[run]:
            del runs[run]
        for part in save.parts:
            name = part.path.removeprefix(save.path).lstrip("/\\")
            address = f"{save.address}{part.path.removeprefix(save.path)}"
            beside[name] = Save(shown(address), name, None, [part], address)


def _join_shared(runs: dict[str, dict[str, Save]]) -> None:
    """Make what lies beside the saves of a run for the newest of them, as recipe_state does, a part of it."""
    shared = layouts().shared_names
    for saves in runs.values():
        for name in shared & saves.keys():
            if len(saves) > 1:
                parts = saves.pop(name).parts
                max(saves.values(), key=lambda save: save.order).parts += parts


def _place_by_time(runs: dict[str, dict[str, Save]]) -> None:
    """Put last.ckpt, which tells no step, after the saves that are no younger, and its copies beside it."""
    newest = layouts().newest
    for saves in runs.values():
        stepless = [(name, save) for name, save in saves.items() if save.step is None]
        for name, save in stepless:
            if newest.fullmatch(name) and (time := save.modification_ns):
                older = (
                    other.step
                    for other in saves.values()
                    if other.step is not None and other.modification_ns <= time
                )
                save.follows = max(older, default=None)
        for name, save in stepless:
            original = saves.get(original_of(name.rpartition("/")[2]))
            if save.copy_kind and original is not None:
                save.follows = original.follows


def _label_copies(runs: dict[str, dict[str, Save]], index: ScanIndex) -> None:
    if index.copies:
        for saves in runs.values():
            for save in saves.values():
                save.made = index.copies.get(save.address, "")


def _join_copies(runs: dict[str, dict[str, Save]]) -> None:
    """Make the saves of runs/a-for-2.14, which are copies, saves of runs/a: one run, one line of saves."""
    for address in list(runs):
        between = "/" if is_remote(address) else os.sep
        above, _, name = address.rpartition(between)
        original = f"{above}{between}{original_of(name)}"
        if original != address and original in runs:
            for save in runs.pop(address).values():
                save.name = f"../{name}/{save.name}"
                runs[original][save.name] = save


def needs_plain_path(python: str | None) -> bool:
    """Whether a Python lacks the pathlib._local that 3.13 writes; one that is not known may."""
    return python is None or tuple(map(int, python.split(".")[:2])) < (3, 13)


def run_lines(runs: Iterable[Saves], judge: Judge) -> tuple[Run, ...]:
    """Return the manifest's line for each run; a folder of nothing but torchenv's copies is none."""
    return tuple(run_line(run, judge) for run in runs if run.originals)


def run_line(run: Saves, judge: Judge) -> Run:
    """Return the manifest's line for a run: its newest complete save, and the newest by environment."""
    resuming = [save for save in run.saves if save.resumes]
    originals = run.originals
    newest = next((save for save in reversed(originals) if save.complete), None)
    readable: dict[int, str] = {}
    with_code: list[int] = []
    for environment in judge.environments:
        for save in reversed(resuming):
            if (read := judge.of_save(save, environment)) in READS:
                readable[environment.number] = save.name
                with_code += [environment.number] if read == "readable-with-code" else []
                break
    after = originals[originals.index(newest) + 1 :] if newest else originals
    writing = tuple(save.name for save in after if save.being_written)
    broken = [save.name for save in after if not save.complete and not save.being_written]
    return Run(
        path=run.path,
        newest=newest.name if newest else None,
        newest_readable=readable,
        needs=_needs(newest, judge) if newest else None,
        downgrades_for=tuple(
            environment.number
            for environment in judge.environments
            if newest and judge.of_copy(newest, environment)
        ),
        broken=tuple(broken[-_NAMED:]),
        writing=writing[-_NAMED:],
        unknown_for=tuple(
            environment.number
            for environment in judge.environments
            if newest and judge.of_save(newest, environment) == "unknown"
        ),
        with_code_for=tuple(with_code),
        lacks={
            environment.number: lacking
            for environment in judge.environments
            if newest and (lacking := judge.find_lacking(newest, environment))
        },
    )


def _needs(save: Save, judge: Judge) -> str | None:
    """Name the oldest torch that reads all of a save, where one is known."""
    from packaging.version import Version

    oldest = [judge.reader(part.found).torch.oldest for part in save.parts]
    return max((item for item in oldest if item), key=Version, default=None)
