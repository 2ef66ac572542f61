"""What a checkpoint holds by name: the shape and dtype of each tensor, without a torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchenv.checkpoints.formats import dcp, safetensors, saved
from torchenv.checkpoints.formats.inert import Damaged, Global, InertObject, Map, Stored
from torchenv.checkpoints.formats.records import Shape
from torchenv.checkpoints.values import some
from torchenv.errors import InputError, NothingSuits
from torchenv.storage.tree import Tree
from torchenv.system.values import frozen


@frozen
class TensorForm:
    """The form of one tensor; `dtype` is torch's name, such as float32."""

    shape: Shape
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(map(str, self.shape))}]"


@dataclass(slots=True)
class Contents:
    """All that a checkpoint holds by name; `objects` are what is no tensor."""

    tensors: dict[str, TensorForm] = field(default_factory=dict)
    objects: set[str] = field(default_factory=set)


def read_contents(tree: Tree) -> Contents:
    """Read the names, shapes and dtypes of a checkpoint: a directory with its parts, or one file.

    Raises `InputError` for what is none, `NothingSuits` for what is damaged or of a form without names.
    """
    sizes = tree.sizes()
    try:
        if dcp.GLOBAL in sizes or any(map(dcp.RANK_LOCAL.fullmatch, sizes)):
            return _read_distributed(tree, sizes)
        tensor_files = [name for name in sizes if name.endswith(safetensors.SUFFIX)]
        if tensor_files:
            return _read_safetensors(tree, tensor_files, sizes)
        if len(sizes) == 1:
            ((name, size),) = sizes.items()
            return _read_saved(saved.read_state(tree, name, size))
    except Damaged as damaged:
        raise NothingSuits(f"{tree.path} cannot be read: {damaged.message}") from None
    raise InputError(f"`{tree.path}` is not a checkpoint", hint="name the directory or the file of one")


def _read_distributed(tree: Tree, sizes: Mapping[str, int]) -> Contents:
    contents = Contents()
    indexes = [dcp.GLOBAL] if dcp.GLOBAL in sizes else sorted(filter(dcp.RANK_LOCAL.fullmatch, sizes))
    for index in indexes:
        _, listing = dcp.read_listing(tree.read(index))
        for name, tensor in listing.tensors.items():
            contents.tensors[name] = TensorForm(tensor.shape, tensor.dtype.removeprefix("torch."))
        contents.objects.update(listing.objects)
    return contents


def _read_safetensors(tree: Tree, names: list[str], sizes: Mapping[str, int]) -> Contents:
    contents = Contents()
    for name in names:
        file = safetensors.read_file(tree, name, sizes[name])
        for tensor, piece in file.tensors.items():
            dtype = safetensors.DTYPES.get(file.dtypes[tensor], file.dtypes[tensor])
            # The files of other ranks may hold other pieces of it.
            begins = file.offsets.get(tensor, ())
            ends = tuple(map(sum, zip(begins, piece, strict=True))) if len(begins) == len(piece) else piece
            before = contents.tensors.get(tensor)
            if before is not None and len(before.shape) == len(ends):
                ends = tuple(map(max, before.shape, ends))
            contents.tensors[tensor] = TensorForm(ends, dtype)
    return contents


# torch.FloatStorage of torch.save's older names.
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16",
    "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}  # fmt: skip
_DEEPEST = 50
_CONTAINERS = (Map, InertObject, list, tuple)


def _read_saved(value: Any) -> Contents:
    contents = Contents()
    for name, found in _leaves(value, "", 0):
        form = _form(found)
        if form is not None:
            contents.tensors[name] = form
        else:
            contents.objects.add(name)
    return contents


def _leaves(value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield what is in dicts and lists under the names that DCP would flatten them to."""
    pairs: list[tuple[Any, Any]] | None = None
    if type(value) is Map:
        pairs = value.pairs()
    elif type(value) is InertObject and value.items is not None:
        pairs = value.items.pairs()
    elif type(value) in (list, tuple) and any(type(item) in _CONTAINERS for item in value):
        # As DCP does: a list of numbers is one object.
        pairs = list(enumerate(value))
    if pairs is None or depth > _DEEPEST:
        yield name, value
        return
    for key, inner in pairs:
        yield from _leaves(inner, f"{name}.{key}" if name else str(key), depth + 1)


def _form(value: Any) -> TensorForm | None:
    if type(value) is not InertObject or type(value.maker) is not Global:
        return None
    maker, arguments = value.maker, value.arguments
    if maker.module != "torch._utils" or not isinstance(arguments, (tuple, list)) or not arguments:
        return None
    if maker.name.startswith("_rebuild_parameter"):
        return _form(arguments[0])
    if not maker.name.startswith("_rebuild_tensor") or len(arguments) < 3:
        return None
    shape = _shape(arguments[2])
    if shape is None:
        return None
    if maker.name == "_rebuild_tensor_v3" and len(arguments) > 6 and type(arguments[6]) is Global:
        return TensorForm(shape, arguments[6].name)
    reference = arguments[0].reference if type(arguments[0]) is Stored else None
    if type(reference) is tuple and len(reference) > 1 and type(reference[1]) is Global:
        return TensorForm(shape, _STORAGES.get(reference[1].name, reference[1].name))
    return None


def _shape(value: Any) -> Shape | None:
    if type(value) is InertObject and isinstance(value.arguments, tuple) and value.arguments:
        value = value.arguments[0]  # torch.Size((3, 4))
    fits = type(value) is tuple and all(type(length) is int for length in value)
    return value if fits else None


@frozen(kw_only=True)
class ContentsDiff:
    """In what two checkpoints differ; `schemes` say how the names of one become those of the other."""

    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    changed: tuple[tuple[str, TensorForm, TensorForm], ...]
    same: int
    schemes: tuple[str, ...]


def compare(before: Contents, after: Contents) -> ContentsDiff:
    """Compare names, shapes and dtypes, and look for a key scheme behind the names that differ."""
    ours, theirs = {*before.tensors, *before.objects}, {*after.tensors, *after.objects}
    shared = before.tensors.keys() & after.tensors.keys()
    changed = tuple(
        (name, before.tensors[name], after.tensors[name])
        for name in sorted(shared)
        if before.tensors[name] != after.tensors[name]
    )
    gone, come = ours - theirs, theirs - ours
    return ContentsDiff(
        only_before=tuple(sorted(gone)),
        only_after=tuple(sorted(come)),
        changed=changed,
        same=len(ours & theirs) - len(changed),
        schemes=tuple(_find_schemes(gone, come)),
    )


# What wrappers and trainers put around the name of a parameter.
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
_PREFIXES = ("model.", "state_dict.", "app.", "module.", "_orig_mod.", "optimizer.", "optim.")


def _find_schemes(gone: set[str], come: set[str]) -> Iterator[str]:
    """Yield what makes names of one side those of the other, where it does so for most of them."""
    if not gone or not come:
        return
    enough = max(1, min(len(gone), len(come)) // 2)
    for wrapper in _WRAPPERS:
        for sides, where in (((gone, come), "first"), ((come, gone), "second")):
            plain = {name.replace(wrapper, "") for name in sides[0] if wrapper in name}
            if len(plain & sides[1]) >= enough:
                yield f"names of the {where} contain `{wrapper}`: a wrapper was saved with them"
    for prefix in _PREFIXES:
        if prefix in _WRAPPERS:
            continue
        for sides, where in (((gone, come), "first"), ((come, gone), "second")):
            plain = {name.removeprefix(prefix) for name in sides[0] if name.startswith(prefix)}
            if len(plain & sides[1]) >= enough:
                yield f"names of the {where} begin with `{prefix}`: its state was saved one level deeper"
    numbered = [_has_numbered_state(gone), _has_numbered_state(come)]
    if numbered[0] != numbered[1]:
        where = "first" if numbered[0] else "second"
        yield (
            f"the optimizer of the {where} goes by number (`state.0`), that of the other by the names of"
            " parameters: one was saved by `optimizer.state_dict()`, one by `get_optimizer_state_dict()`"
        )
    flattened = [_has_flat_groups(gone), _has_flat_groups(come)]
    if flattened[0] != flattened[1]:
        where = "first" if flattened[0] else "second"
        yield (
            f"the parameter groups of the {where} are flattened (`param_groups.0.lr`), those of the other are"
            " one object: written by torch 2.4 or newer and by an older one"
        )
    if lacking := {name.rpartition(".")[2] for name in gone ^ come} & {"decoupled_weight_decay"}:
        yield f"only one has {some(sorted(lacking))}, which Adam of torch 2.7 and newer asks for"


def _has_numbered_state(names: set[str]) -> bool:
    return any(
        ".state." in f".{name}" and f".{name}".split(".state.")[1].split(".")[0].isdecimal() for name in names
    )


def _has_flat_groups(names: set[str]) -> bool:
    return any("param_groups." in name for name in names)
