"""Distributed checkpoints: what their metadata says, and whether their shards are all there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torchenv.checkpoints.formats.checks import Checks, ReadPart
from torchenv.checkpoints.formats.coverage import covers
from torchenv.checkpoints.formats.inert import Damaged, Global, Hidden, Map
from torchenv.checkpoints.formats.listing import MOST_FIELDS, Listing, list_metadata
from torchenv.checkpoints.formats.pickles import GETATTR, LARGEST, PickleWalk, walk
from torchenv.checkpoints.formats.records import (
    OLD_PROPERTIES,
    PLACE,
    PROPERTIES,
    ChunkPlace,
    Records,
    States,
    Tensor,
)
from torchenv.checkpoints.formats.stand_ins import HEAD, find_stand_in
from torchenv.checkpoints.readability import rules
from torchenv.checkpoints.values import (
    Checkpoint,
    CheckpointNote,
    Reader,
    State,
    escape_name,
    foreign_names,
    gaps,
    some,
)
from torchenv.storage.tree import Tree
from torchenv.system.garbage import no_garbage_collection
from torchenv.system.values import frozen

GLOBAL = ".metadata"
RANK_LOCAL = re.compile(r"__(\d+)\.metadata")
_MOST_NAMES = 1_000  # foreign names that are told
_STAND_IN = 64 << 10  # bytes; what stands for a shard is small
_SMALL = 4 << 20  # bytes; below, writing the expressions of `records` costs more than it saves


@dataclass(slots=True, kw_only=True)
class Facts:
    """What decides who can read one `.metadata`."""

    globals: Mapping[Global, int]
    states: States
    transformed: bool
    walked: PickleWalk


def read_facts(data: bytes) -> Facts:
    """Read what decides who can read a `.metadata`, in little more memory than the file itself.

    Raises `Damaged`.
    """
    return _walk_metadata(data, keep=False)


def read_listing(data: bytes) -> tuple[Facts, Listing]:
    """Read every tensor, chunk and object of a `.metadata`; raises `Damaged`."""
    with no_garbage_collection():
        facts = _walk_metadata(data, keep=True)
        try:
            return facts, list_metadata(facts.walked.value, most=len(data))
        except Damaged as damaged:
            damaged.names = tuple(facts.globals)
            raise


@frozen(kw_only=True)
class CheckedMetadata:
    """A `.metadata` of which every tensor is covered and every chunk has a place."""

    facts: Facts
    tensors: int
    objects: list[str]
    ends: Mapping[str, int]  # how long each file has to be


def check_metadata(read: ReadPart, size: int) -> CheckedMetadata | None:
    """Check a large `.metadata` part by part; None where it has to be read as a whole to say what it is."""
    states = States()
    with no_garbage_collection():
        try:
            checks = Checks(read, size, states)
            facts = _walk(checks.data, states, checks)
            checks.finish(facts.walked.value)
        except (Damaged, Hidden):
            return None
    if not checks.is_right:
        return None
    return CheckedMetadata(facts=facts, tensors=checks.tensors, objects=checks.objects, ends=checks.ends)


def features(facts: Facts) -> tuple[list[str], list[Global]]:
    """Return the codes of the features in one `.metadata`, and the names that no release writes."""
    known = rules()
    passed = {GETATTR} if known.takes_members_alone(facts.walked) else set()
    codes, foreign = known.of_names((item for item in facts.globals if item not in passed), "dcp")
    if facts.states.six:
        codes.append("dcp-strides")
    if facts.states.others:
        codes.append("custom-metadata")
    if facts.transformed:
        codes.append("dcp-transforms")
    return codes, foreign


def inspect(tree: Tree) -> Checkpoint:
    """Describe what a directory with `.metadata`, `__N.metadata` or `.distcp` files holds."""
    sizes = tree.sizes()
    ranks = sorted(int(found[1]) for name in sizes if (found := RANK_LOCAL.fullmatch(name)))
    indexes = [GLOBAL] if GLOBAL in sizes else [f"__{rank}.metadata" for rank in ranks]
    look = _Look()
    if not indexes:
        look.problem("incomplete", "no-metadata", _describe_unfinished(sizes))
    if not (indexes == [GLOBAL] and look.check(tree, sizes[GLOBAL])):
        for index in indexes:
            look.read(tree, index, sizes[index])
    if GLOBAL not in sizes and ranks:
        look.codes.append("dcp-rank-local")
        if missing := gaps(ranks, range(max(ranks) + 1)):
            message = f"no metadata of rank {some(missing)}"
            look.problem("incomplete", "rank-metadata-missing", message)
    if look.state != "corrupt" and indexes:
        look.check_tensors()
        look.check_shards(tree, sizes)
        look.find_layout(tree, sizes)
        look.find_optimizer()
    reader = look.reader()
    if indexes != [GLOBAL] and ranks:
        reader = rules().reader(look.all_codes(), ranks_min=len(ranks))
    return Checkpoint(
        path=tree.path,
        format="dcp",
        state=look.state,
        problems=tuple(look.problems),
        reader=reader,
        tensors=look.count if indexes else None,
        bytes=sum(sizes.values()),
        foreign=tuple(map(str, look.foreign[:_MOST_NAMES])),
    )


class _Look:
    """What was seen of one checkpoint so far."""

    def __init__(self) -> None:
        self.state: State = "complete"
        self.problems: list[CheckpointNote] = []
        self.codes: list[str] = []
        self.foreign: list[Global] = []
        self.tensors: dict[str, Tensor] = {}
        self.objects: list[str] = []
        self.places: list[ChunkPlace] = []
        self.checked: CheckedMetadata | None = None

    @property
    def count(self) -> int:
        """How many tensors there are."""
        return self.checked.tensors if self.checked else len(self.tensors)

    def problem(self, state: State, code: str, message: str) -> None:
        self.problems.append(CheckpointNote(code, message))
        if self.state != "corrupt":
            self.state = state

    def check(self, tree: Tree, size: int) -> bool:
        """Check a large `.metadata` without keeping what it lists; False where it has to be read."""
        if not _SMALL < size <= LARGEST:
            return False
        try:
            self.checked = check_metadata(partial(tree.read, GLOBAL), size)
        except OSError:
            return False
        if self.checked is None:
            return False
        codes, foreign = features(self.checked.facts)
        self.codes += codes
        self.note_names(foreign)
        self.objects = self.checked.objects
        return True

    def read(self, tree: Tree, index: str, size: int) -> None:
        if size > LARGEST:
            self.problem(
                "corrupt", "pickle-too-large", f"{index}: a pickle of {size} bytes is too large to open"
            )
            return
        try:
            facts, listing = read_listing(tree.read(index))
        except Damaged as damaged:
            found = find_stand_in(tree.read(index, 0, HEAD), size)
            code, said = (found.code, found.message) if found else (damaged.code, damaged.message)
            self.problem("corrupt", code, f"{index}: {said}")
            self.note_names(rules().of_names(damaged.names, "dcp")[1])
            return
        except OSError as error:
            self.problem("corrupt", "unreadable", f"{index}: {error.strerror or error}")
            return
        codes, foreign = features(facts)
        self.codes += codes
        self.note_names(foreign)
        for name, tensor in listing.tensors.items():
            known = self.tensors.setdefault(name, tensor)
            if known is not tensor:
                # Each rank's own metadata tells of its own chunks.
                self.tensors[name] = tensor._replace(pieces=[*known.pieces, *tensor.pieces])
        self.objects += listing.objects
        self.places += listing.places

    def note_names(self, foreign: list[Global]) -> None:
        self.foreign += foreign
        if foreign:
            self.problems.append(foreign_names(foreign))

    def check_tensors(self) -> None:
        uncovered = []
        for name, tensor in self.tensors.items():
            pieces = tensor.pieces
            if len(pieces) == 1 and pieces[0].sizes == tensor.shape and not any(pieces[0].offsets):
                continue
            covered = covers(tensor.shape, pieces)
            if covered is None:
                self.problems.append(
                    CheckpointNote("coverage-unknown", f"cannot tell whether the chunks cover `{name}`")
                )
            elif not covered:
                uncovered.append(name)
        if uncovered:
            message = f"chunks do not cover {some(uncovered)}"
            self.problem("incomplete", "chunks-missing", message)

    def check_shards(self, tree: Tree, sizes: Mapping[str, int]) -> None:
        needed: dict[str, int] = dict(self.checked.ends) if self.checked else {}
        stored = set()
        for place in self.places:
            stored.add((place.name, place.offsets))
            end = place.start + place.length
            if place.start < 0 or place.length < 0:
                end = 1 << 63
            if needed.get(place.file, -1) < end:
                needed[place.file] = end
        for file, end in sorted(needed.items()):
            if file not in sizes:
                self.problem("incomplete", "shard-missing", f"{escape_name(file)} is missing")
            elif sizes[file] < end:
                message = f"{escape_name(file)} has {sizes[file]} bytes, its metadata needs {end}"
                found = _find_stand_in(tree, file, sizes[file])
                if found is None:
                    self.problem("corrupt", "shard-short", message)
                else:
                    self.problem("corrupt", found.code, f"{escape_name(file)}: {found.message}")
        unplaced = [
            name
            for name, tensor in self.tensors.items()
            for piece in tensor.pieces
            if 0 not in piece.sizes and (name, piece.offsets) not in stored
        ]
        unplaced += [name for name in self.objects if (name, None) not in stored and not self.checked]
        if unplaced:
            message = f"the metadata names no file for {some(dict.fromkeys(unplaced))}"
            self.problem("incomplete", "place-missing", message)

    def find_layout(self, tree: Tree, sizes: Mapping[str, int]) -> None:
        """See whether the shards are safetensors: a length, then JSON."""
        named = self.checked.ends if self.checked else [place.file for place in self.places]
        file = next((file for file in named if file in sizes), None)
        if file is None:
            return
        try:
            head = tree.read(file, 0, 9)
        except OSError as error:
            self.problem("corrupt", "unreadable", f"{escape_name(file)}: {error.strerror or error}")
            return
        if head[8:] == b"{" and int.from_bytes(head[:8], "little") < sizes[file]:
            self.codes.append("dcp-safetensors")

    def find_optimizer(self) -> None:
        # optim.param_groups.0.betas is Adam's; `decoupled_weight_decay` joined it in torch 2.7.
        held = set(self.objects)
        groups = {name.rpartition(".")[0] for name in held if name.endswith(".betas")}
        if any(f"{group}.decoupled_weight_decay" not in held for group in groups):
            self.codes.append("optimizer-keys")

    def all_codes(self) -> list[str]:
        codes = list(self.codes)
        if self.foreign:
            codes.append("foreign-names")
        if self.state != "complete" and not self.count:
            codes.append("unread")
        return codes

    def reader(self) -> Reader:
        return rules().reader(self.all_codes())


def _find_stand_in(tree: Tree, file: str, size: int) -> CheckpointNote | None:
    # An empty shard is told by what its metadata needs.
    if not 0 < size <= _STAND_IN:
        return None
    try:
        return find_stand_in(tree.read(file, 0, HEAD), size)
    except OSError:
        return None


def _walk_metadata(data: bytes, *, keep: bool) -> Facts:
    """Walk a `.metadata`; a large one by shortcuts, where they are enough."""
    states = States()
    records = Records(data, states, keep=keep) if len(data) > _SMALL else None
    try:
        return _walk(data, states, records)
    except Hidden:
        pass
    except Damaged:
        # Where values were not kept, what looks damaged may only lack them.
        if records is None or records.fence is None:
            raise
    return _walk(data, States(), None)


def _walk(data: bytes, states: States, records: Records | None) -> Facts:
    facts = Facts(globals={}, states=states, transformed=False, walked=PickleWalk())

    def note_place(state: Any, _: int | None) -> None:
        if type(state) is Map and "transform_descriptors" in state[:MOST_FIELDS:2]:
            facts.transformed = True

    watched = {PROPERTIES: states.note, OLD_PROPERTIES: states.note, PLACE: note_place}
    facts.walked = walk(data, watched=watched, shortcuts=records)
    facts.globals = facts.walked.globals
    size = records.size if records else len(data)
    if facts.walked.end != size:
        extra = size - facts.walked.end
        raise Damaged("pickle-damaged", f"{extra} bytes follow the end of the pickle")
    return facts


def _describe_unfinished(sizes: Mapping[str, int]) -> str:
    if f"{GLOBAL}.tmp" in sizes:
        return f"no {GLOBAL}, only {GLOBAL}.tmp: the save was interrupted, or is still running"
    return f"no {GLOBAL}: the save did not finish"
