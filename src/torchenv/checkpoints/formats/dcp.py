"""Distributed checkpoints: what their metadata says, and whether their shards are all there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchenv.checkpoints.formats.coverage import covers
from torchenv.checkpoints.formats.inert import Damaged, Global, Hidden, InertObject, Map
from torchenv.checkpoints.formats.pickles import GETATTR, LARGEST, PickleWalk, walk
from torchenv.checkpoints.formats.records import (
    INDEX,
    METADATA,
    OBJECT,
    OLD_PROPERTIES,
    PLACE,
    PROPERTIES,
    SIZE,
    TENSOR,
    ChunkPlace,
    Piece,
    Records,
    Shape,
    States,
    Tensor,
)
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

GLOBAL = ".metadata"
RANK_LOCAL = re.compile(r"__(\d+)\.metadata")
_MOST_FIELDS = 64  # items of one record's dict, keys and values; torch writes at most 10
_MOST_NAMES = 1_000  # foreign names that are told
_MOST_DIMENSIONS = 64  # torch makes no tensor of more
_SMALL = 4 << 20  # bytes; below, writing the expressions of `records` costs more than it saves


@dataclass(slots=True, kw_only=True)
class Facts:
    """What decides who can read one `.metadata`."""

    globals: Mapping[Global, int]
    states: States
    transformed: bool
    walked: PickleWalk


@dataclass(slots=True, kw_only=True)
class Listing:
    """Every tensor, chunk and object of one `.metadata`."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)
    places: list[ChunkPlace] = field(default_factory=list)


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
            return facts, _listing(facts.walked.value, most=len(data))
        except Damaged as damaged:
            damaged.names = tuple(facts.globals)
            raise


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
    for index in indexes:
        look.read(tree, index, sizes[index])
    if GLOBAL not in sizes and ranks:
        look.codes.append("dcp-rank-local")
        if missing := gaps(ranks, range(max(ranks) + 1)):
            message = f"no metadata of rank {some(missing)}"
            look.problem("incomplete", "rank-metadata-missing", message)
    if look.state != "corrupt" and indexes:
        look.check_tensors()
        look.check_shards(sizes)
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
        tensors=len(look.tensors) if indexes else None,
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

    def problem(self, state: State, code: str, message: str) -> None:
        self.problems.append(CheckpointNote(code, message))
        if self.state != "corrupt":
            self.state = state

    def read(self, tree: Tree, index: str, size: int) -> None:
        if size > LARGEST:
            self.problem("corrupt", "pickle-too-large", f"{index}: a pickle of {size} bytes is not opened")
            return
        try:
            facts, listing = read_listing(tree.read(index))
        except Damaged as damaged:
            self.problem("corrupt", damaged.code, f"{index}: {damaged.message}")
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
                    CheckpointNote("coverage-unknown", f"the chunks of {name!r} are tangled")
                )
            elif not covered:
                uncovered.append(name)
        if uncovered:
            message = f"chunks do not cover {some(uncovered)}"
            self.problem("incomplete", "chunks-missing", message)

    def check_shards(self, sizes: Mapping[str, int]) -> None:
        needed: dict[str, int] = {}
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
                self.problem("incomplete", "shard-missing", f"{escape_name(file)} is not there")
            elif sizes[file] < end:
                message = f"{escape_name(file)} has {sizes[file]} bytes, its metadata needs {end}"
                self.problem("corrupt", "shard-short", message)
        unplaced = [
            name
            for name, tensor in self.tensors.items()
            for piece in tensor.pieces
            if 0 not in piece.sizes and (name, piece.offsets) not in stored
        ]
        unplaced += [name for name in self.objects if (name, None) not in stored]
        if unplaced:
            message = f"no file is named for {some(dict.fromkeys(unplaced))}"
            self.problem("incomplete", "place-missing", message)

    def find_layout(self, tree: Tree, sizes: Mapping[str, int]) -> None:
        """See whether the shards are safetensors: a length, then JSON."""
        file = next((place.file for place in self.places if place.file in sizes), None)
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
        if self.state != "complete" and not self.tensors:
            codes.append("unread")
        return codes

    def reader(self) -> Reader:
        return rules().reader(self.all_codes())


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
        if type(state) is Map and "transform_descriptors" in state[:_MOST_FIELDS:2]:
            facts.transformed = True

    watched = {PROPERTIES: states.note, OLD_PROPERTIES: states.note, PLACE: note_place}
    facts.walked = walk(data, watched=watched, shortcuts=records)
    facts.globals = facts.walked.globals
    if facts.walked.end != len(data):
        extra = len(data) - facts.walked.end
        raise Damaged("pickle-damaged", f"{extra} bytes follow the end of the pickle")
    return facts


def _listing(value: Any, *, most: int) -> Listing:
    """Take the tensors, objects and places out of what the pickle would make.

    `most` is how many chunks there may be: one list of them may be named by any number of tensors.
    """
    if type(value) is not InertObject or value.maker != Global(METADATA, "Metadata"):
        raise Damaged("not-metadata", "the pickle holds something other than checkpoint metadata")
    if type(value.state) is not Map:
        raise Damaged("not-metadata", "the metadata is empty")
    listing = Listing()
    names, entries = _entries(value.state, "state_dict_metadata")
    if set(map(type, names)) - {str}:
        raise Damaged("not-metadata", "the metadata has an entry without a name")
    for name, entry in zip(names, entries, strict=True):
        if type(entry) is Tensor:
            listing.tensors[name] = entry
        elif type(entry) is InertObject and entry.maker == OBJECT:
            listing.objects.append(name)
        else:
            tensor = listing.tensors[name] = _tensor(_state(entry, TENSOR), most)
            most -= len(tensor.pieces)
    keys, entries = _entries(value.state, "storage_data")
    listing.places = [
        key if type(key) is ChunkPlace else _place(_state(key, INDEX), _state(entry, PLACE))
        for key, entry in zip(keys, entries, strict=True)
    ]
    return listing


def _entries(state: Map, key: str) -> tuple[list[Any], list[Any]]:
    entries = state.get(key)
    if entries is None:
        return [], []
    if type(entries) is not Map:
        raise Damaged("not-metadata", f"{key} of the metadata is not a dict")
    return entries[::2], entries[1::2]


def _state(value: Any, maker: Global) -> Map:
    if type(value) is InertObject and value.maker == maker and type(value.state) is Map:
        if len(value.state) > _MOST_FIELDS:
            raise Damaged("not-metadata", f"a {maker.name} of the metadata has too many fields")
        return value.state
    raise Damaged("not-metadata", f"the metadata has something in the place of a {maker.name}")


def _tensor(state: Map, most: int) -> Tensor:
    properties, chunks = state.get("properties"), state.get("chunks")
    if type(properties) is not InertObject or type(properties.state) is not tuple or not properties.state:
        raise Damaged("not-metadata", "a tensor of the metadata has no properties")
    dtype = properties.state[0]
    if type(dtype) is not Global or type(chunks) is not list:
        raise Damaged("not-metadata", "a tensor of the metadata has no dtype or no chunks")
    if len(chunks) > most:
        raise Damaged("pickle-too-large", "the tensors have more chunks than the metadata has bytes")
    pieces = []
    for chunk in chunks:
        if type(chunk) is Piece:
            pieces.append(chunk)
            continue
        if type(chunk) is not InertObject or type(chunk.state) is not Map or len(chunk.state) > _MOST_FIELDS:
            raise Damaged("not-metadata", "a chunk of the metadata has no size")
        pieces.append(Piece(_shape(chunk.state.get("offsets")), _shape(chunk.state.get("sizes"))))
    return Tensor(str(dtype), _shape(state.get("size")), pieces)


def _place(index: Map, info: Map) -> ChunkPlace:
    name, offset = index.get("fqn"), index.get("offset")
    file, start, length = (info.get(key) for key in ("relative_path", "offset", "length"))
    if type(name) is not str or type(file) is not str:
        raise Damaged("not-metadata", "the metadata stores something without a name")
    if type(start) is not int or type(length) is not int:
        raise Damaged("not-metadata", "the metadata stores something without a place")
    return ChunkPlace(name, None if offset is None else _shape(offset), file, start, length)


def _shape(value: Any) -> Shape:
    if type(value) is InertObject and value.maker == SIZE:
        arguments = value.arguments
        value = arguments[0] if type(arguments) is tuple and len(arguments) == 1 else None
    if type(value) not in (tuple, list) or len(value) > _MOST_DIMENSIONS:
        raise Damaged("not-metadata", "the metadata has something in the place of a size")
    if not all(type(length) is int for length in value):
        raise Damaged("not-metadata", "the metadata has something in the place of a size")
    return tuple(value)


def _describe_unfinished(sizes: Mapping[str, int]) -> str:
    if f"{GLOBAL}.tmp" in sizes:
        return f"no {GLOBAL}, only {GLOBAL}.tmp: the save was stopped, or is still going on"
    return f"no {GLOBAL}: the save did not finish"
