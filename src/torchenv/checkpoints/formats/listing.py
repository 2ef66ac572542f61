"""Takes the tensors, objects and places of a checkpoint out of what its `.metadata` would make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torchenv.checkpoints.formats.inert import Damaged, Global, InertObject, Map
from torchenv.checkpoints.formats.records import (
    INDEX,
    METADATA,
    OBJECT,
    PLACE,
    SIZE,
    TENSOR,
    ChunkPlace,
    Piece,
    Shape,
    Tensor,
)

MOST_FIELDS = 64  # items of one record's dict, keys and values; torch writes at most 10
_MOST_DIMENSIONS = 64  # torch makes no tensor of more


@dataclass(slots=True, kw_only=True)
class Listing:
    """Every tensor, chunk and object of one `.metadata`."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)
    places: list[ChunkPlace] = field(default_factory=list)


def list_metadata(value: Any, *, most: int) -> Listing:
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
        if len(value.state) > MOST_FIELDS:
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
        if type(chunk) is not InertObject or type(chunk.state) is not Map or len(chunk.state) > MOST_FIELDS:
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
