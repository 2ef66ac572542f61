"""What torch writes into one file: torch.save's zip and its legacy form, TorchScript, and .pt2."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from torchenv.checkpoints.formats.inert import Damaged, Global
from torchenv.checkpoints.formats.pickles import LARGEST, PickleWalk, walk
from torchenv.checkpoints.formats.stand_ins import HEAD, find_stand_in
from torchenv.checkpoints.readability import rules
from torchenv.checkpoints.values import Checkpoint, CheckpointNote, Format, Range, State, foreign_names, some
from torchenv.storage.tree import Tree, TreeFile

ZIP = b"PK\x03\x04"
LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # a pickle of torch.save's magic number
_BEGINNING = 256 << 20  # bytes at the start of a file that hold its pickles; storages follow
_PLAIN = 16 << 20  # bytes of a pickle that torch.save did not write
_NAMED = 1_000  # foreign names that are told
_ITEM_SIZES = {
    "DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8,
    "IntStorage": 4, "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1,
    "ComplexFloatStorage": 8, "ComplexDoubleStorage": 16, "QInt8Storage": 1, "QUInt8Storage": 1,
    "QInt32Storage": 4, "UntypedStorage": 1,
}  # fmt: skip
_TENSORS = [
    Global("torch._utils", name)
    for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor")
]


def inspect_zip(tree: Tree, name: str, size: int) -> Checkpoint:
    """Describe what an archive of torch's holds: torch.save's, TorchScript's or torch.export's."""
    try:
        archive = _Archive(tree, name, size)
        members = archive.members
        if "archive_format" in members or "serialized_exported_program.json" in members:
            return _describe_exported(tree, size, archive)
        script = "constants.pkl" in members or any(member.startswith("code/") for member in members)
        form: Format = "torchscript" if script else "torch-zip"
        if "data.pkl" not in members:
            return _describe_damaged(tree, size, "unknown", "not-torch", "an archive without data.pkl")
        data = archive.read("data.pkl")
    except Damaged as damaged:
        # A save that was stopped has no directory yet: that is at an archive's end.
        return _describe_damaged(tree, size, "torch-zip", damaged.code, damaged.message)
    try:
        walked = walk(data)
    except Damaged as damaged:
        return _describe_damaged(tree, size, form, damaged.code, damaged.message, names=damaged.names)
    sizes = {member.removeprefix("data/"): info.file_size for member, info in members.items()}
    problems, state = _check_storages(walked.stored, sizes)
    try:
        refusals = _read_refusals(archive)
    except Damaged as damaged:
        return _describe_damaged(tree, size, form, damaged.code, damaged.message)
    return _describe_save(tree, size, form, walked, data, problems=problems, state=state, codes=refusals)


def _read_refusals(archive: _Archive) -> list[str]:
    """Return what every torch refuses in an archive's own fields: its version, its byte order."""
    codes = []
    for name in (".data/version", "version"):
        if name in archive.members:
            version = archive.read(name).strip()
            # kMinSupportedFileFormatVersion and kMaxSupported… of caffe2/serialize/versions.h
            if not version.isdigit() or len(version) > 4 or not 1 <= int(version) <= 10:
                codes.append("archive-version")
            break
    if "byteorder" in archive.members and archive.read("byteorder") not in (b"little", b"big"):
        codes.append("byteorder")
    return codes


def read_state(tree: Tree, name: str, size: int) -> Any:
    """Return what one file of torch.save holds, as inert values; raises `Damaged`."""
    head = tree.read(name, 0, 32)
    if head.startswith(ZIP):
        archive = _Archive(tree, name, size)
        if "data.pkl" not in archive.members:
            raise Damaged("not-torch", "an archive without data.pkl")
        return walk(archive.read("data.pkl")).value
    if head.startswith(LEGACY):
        data = tree.read(name, 0, _BEGINNING)
        at = len(LEGACY)
        for _ in range(2):  # the version of the protocol, and of the system
            at = walk(data, at).end
        return walk(data, at).value
    raise Damaged("not-torch", "the file does not begin like one that torch writes")


def inspect_legacy(tree: Tree, name: str, size: int) -> Checkpoint:
    """Describe what a file of torch.save's older form holds: five pickles, then the storages."""
    problems: list[CheckpointNote] = []
    state: State = "complete"
    try:
        data = tree.read(name, 0, _BEGINNING)
        at = len(LEGACY)
        for _ in range(2):  # the version of the protocol, and of the system
            at = walk(data, at).end
        walked = walk(data, at)
        keys = walk(data, walked.end)
        needed = keys.end + sum(8 + length for length in _storages(walked.stored).values())
        if needed > size:
            message = f"{size} bytes, its tensors need {needed}"
            problems, state = [CheckpointNote("storage-short", message)], "corrupt"
    except Damaged as damaged:
        return _describe_damaged(
            tree, size, "torch-legacy", damaged.code, damaged.message, names=damaged.names
        )
    except OSError as error:
        return _describe_damaged(tree, size, "torch-legacy", "unreadable", error.strerror or str(error))
    return _describe_save(tree, size, "torch-legacy", walked, data, problems=problems, state=state)


def inspect_pickle(tree: Tree, name: str, size: int) -> Checkpoint:
    """Describe what a pickle on its own names: it may be taken for a checkpoint of torch's."""
    try:
        data = tree.read(name, 0, _PLAIN)
        walked = walk(data)
    except Damaged as damaged:
        if size > _PLAIN:
            message = f"a pickle of {size} bytes that torch.save did not write"
            return _describe_damaged(tree, size, "unknown", "not-torch", message, names=damaged.names)
        return _describe_damaged(tree, size, "unknown", damaged.code, damaged.message, names=damaged.names)
    except OSError as error:
        return _describe_damaged(tree, size, "unknown", "unreadable", error.strerror or str(error))
    problem = CheckpointNote("not-torch", "a pickle that torch.save did not write")
    return _describe_save(tree, size, "unknown", walked, data, problems=[problem], state="complete")


def inspect_other(tree: Tree, size: int, error: OSError | None = None) -> Checkpoint:
    """Describe a file that is named like a checkpoint that it cannot be read, or is none."""
    if error is not None:
        return _describe_damaged(tree, size, "unknown", "unreadable", error.strerror or str(error))
    (name,) = tree.sizes()
    if (stand_in := find_stand_in(tree.read(name, 0, HEAD), size)) is not None:
        return _describe_damaged(tree, size, "unknown", stand_in.code, stand_in.message)
    return _describe_damaged(
        tree, size, "unknown", "not-torch", "the file does not begin like one that torch writes"
    )


class _Archive:
    """A zip archive, as torch writes it: with one directory, of any name, around it all."""

    def __init__(self, tree: Tree, name: str, size: int) -> None:
        self._tree, self._name, self._size = tree, name, size
        try:
            with zipfile.ZipFile(TreeFile(tree, name, size)) as archive:
                infos = archive.infolist()
        except (
            zipfile.BadZipFile,
            OSError,
            ValueError,
            struct.error,
            NotImplementedError,
        ) as error:
            message = f"the archive cannot be read: {error}"
            raise Damaged("archive-damaged", message) from None
        roots = {info.filename.partition("/")[0] for info in infos if "/" in info.filename}
        root = f"{roots.pop()}/" if len(roots) == 1 else ""
        self.members: Mapping[str, zipfile.ZipInfo] = {
            info.filename.removeprefix(root): info for info in infos
        }

    def read(self, name: str) -> bytes:
        """Return a member; its checksum is not looked at, since torch can be told to write none."""
        info = self.members[name]
        most = max(info.file_size, info.compress_size)
        if most > LARGEST or info.file_size > self._size + (1 << 20):
            message = f"{name} would have {most} bytes, in an archive of {self._size}"
            raise Damaged("archive-bomb", message)
        try:
            header = self._tree.read(self._name, max(0, info.header_offset), 30)
            if header[:4] != ZIP or len(header) < 30:
                raise Damaged("archive-damaged", f"{name} is not where the archive says")
            lengths = struct.unpack_from("<HH", header, 26)
            at = info.header_offset + 30 + sum(lengths)
            raw = self._tree.read(self._name, at, info.compress_size)
            if info.compress_type == zipfile.ZIP_DEFLATED:
                raw = zlib.decompressobj(-15).decompress(raw, max(info.file_size, 1))
        except (OSError, zlib.error) as error:
            raise Damaged("archive-damaged", f"{name} cannot be read: {error}") from None
        if len(raw) != info.file_size:
            raise Damaged("archive-damaged", f"{name} ends early")
        return raw


def _describe_save(
    tree: Tree,
    size: int,
    form: Format,
    walked: PickleWalk,
    data: bytes,
    *,
    problems: list[CheckpointNote],
    state: State,
    codes: Iterable[str] = (),
) -> Checkpoint:
    names = list(walked.globals)
    if form == "torchscript":
        # Classes of the archive's own code: nothing is imported for them.
        names = [name for name in names if not name.module.startswith("__torch__")]
    found, foreign = rules().of_names(names, "save")
    codes = [*codes, *found]
    if "nested-jagged" in codes:
        written = _describe_jagged(walked, data)
        codes = [written if code == "nested-jagged" else code for code in codes]
    if form != "torchscript" and walked.protocol > 2:
        codes.append("protocol-5" if walked.protocol == 5 else "protocol-4")
    if foreign:
        codes.append("foreign-names")
        problems = [*problems, foreign_names(foreign)]
    if form == "unknown":
        codes.append("unread")
    return Checkpoint(
        path=tree.path,
        format=form,
        state=state,
        problems=tuple(problems),
        reader=rules().reader(codes, allow=_find_allowed(names, walked), packages=rules().of_packages(names)),
        tensors=sum(walked.calls.get(item, 0) for item in _TENSORS),
        bytes=size,
        foreign=tuple(map(str, foreign[:_NAMED])),
    )


# The classes of numpy's dtypes, whose state torch.load sets only where they are allowed, too.
_DTYPES = {
    "b1": "Bool", "i1": "Int8", "i2": "Int16", "i4": "Int32", "i8": "Int64", "u1": "UInt8", "u2": "UInt16",
    "u4": "UInt32", "u8": "UInt64", "f2": "Float16", "f4": "Float32", "f8": "Float64", "f16": "LongDouble",
    "c8": "Complex64", "c16": "Complex128", "U": "Str", "S": "Bytes", "O": "Object", "M": "DateTime64",
    "m": "TimeDelta64", "V": "Void",
}  # fmt: skip


def _find_allowed(names: Iterable[Global], walked: PickleWalk) -> tuple[str, ...]:
    """Return all that has to be allowed before torch.load's default opens a file."""
    kinds = {_DTYPES.get(dtype) or _DTYPES.get(dtype[:1]) for dtype in walked.dtypes}
    classes = [f"numpy.dtypes.{kind}DType" for kind in sorted(filter(None, kinds))]
    return (*rules().needs_allowed(names), *classes)


def _describe_jagged(walked: PickleWalk, data: bytes) -> str:
    """Describe which releases wrote a jagged nested tensor by the attributes it was given."""
    if Global("torch._dynamo.decorators", "_DimRange") not in walked.globals:
        return "nested-jagged-2.15"
    return "nested-jagged-2.12" if b"_dynamo_hint_overrides" in data else "nested-jagged"


def _check_storages(stored: list[Any], sizes: Mapping[str, int]) -> tuple[list[CheckpointNote], State]:
    needed = _storages(stored)
    missing = [key for key in needed if key not in sizes]
    short = [key for key, length in needed.items() if sizes.get(key, length) < length]
    if short:
        return [CheckpointNote("storage-short", f"too few bytes in storage {some(short)}")], "corrupt"
    if missing:
        return [CheckpointNote("storage-missing", f"no storage {some(missing)}")], "incomplete"
    return [], "complete"


def _storages(stored: list[Any]) -> dict[str, int]:
    """Return the bytes that each storage has, by its key."""
    # ('storage', torch.FloatStorage, '0', 'cpu', 12)
    needed = {}
    for reference in stored:
        if type(reference) is tuple and len(reference) >= 5 and type(reference[1]) is Global:
            _, kind, key, _, count = reference[:5]
            if isinstance(key, str) and type(count) is int:
                needed[key] = count * _ITEM_SIZES.get(kind.name, 0)
    return needed


def _describe_exported(tree: Tree, size: int, archive: _Archive) -> Checkpoint:
    names = ("models/model.json", "serialized_exported_program.json")
    name = next((name for name in names if name in archive.members), None)
    ranges: Range | None = None
    if name is not None:
        # "schema_version": {"major": 8, "minor": 20}, …, "torch_version": "2.15.0+cu132"
        written = re.findall(rb'"torch_version":\s*"([^"\\]{1,40})"', archive.read(name))
        ranges = _export_range(written[-1].decode(errors="replace") if written else "2.2")
    codes = ["pt2"] if ranges else ["pt2", "unread"]
    told = {"torch": ranges} if ranges else {}
    return Checkpoint(
        path=tree.path,
        format="pt2",
        state="complete",
        reader=rules().reader(codes, **told),
        bytes=size,
    )


def _export_range(writer: str) -> Range | None:
    # The first releases to say so write "<=2.4" for what they do not know.
    try:
        release = Version(writer.removeprefix("<=")).release
    except InvalidVersion:
        return None
    fitting = (rule for start, rule in rules().pt2 if release >= Version(start).release)
    return next(fitting, None)


def _describe_damaged(
    tree: Tree,
    size: int,
    form: Format,
    code: str,
    message: str,
    *,
    names: Iterable[Global] = (),
) -> Checkpoint:
    foreign = rules().of_names(names, "save")[1]
    problems = [CheckpointNote(code, message)] + ([foreign_names(foreign)] if foreign else [])
    return Checkpoint(
        path=tree.path,
        format=form,
        state="corrupt",
        problems=tuple(problems),
        reader=rules().reader(["unread"]),
        bytes=size,
        foreign=tuple(map(str, foreign[:_NAMED])),
    )
