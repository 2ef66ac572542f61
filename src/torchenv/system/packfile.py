"""One file that holds an environment: how it is written, what it says of itself, and how it is opened again.

What it says stands at its end, in a frame that readers of zstd pass over and that lies behind a squashfs. So
it is read with one look at the file, whatever programs this machine has.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import struct
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from enum import Enum
from hashlib import file_digest
from pathlib import Path
from typing import Any

from torchenv.errors import InputError, ToolFailed
from torchenv.system.disk import Disk
from torchenv.system.documents import Table, plain
from torchenv.system.process import Command, Programs
from torchenv.system.values import frozen

SCHEMA = "torchenv.pack/1"

# A frame that zstd skips: its number, the length of what follows.
_FRAME = struct.Struct("<II")
_SKIPPED = 0x184D2A50
_END = struct.Struct("<I8s")
_MARK = b"torchenv"


class PackKind(Enum):
    """How a directory becomes one file, by the end of the file's name."""

    TAR = ".tar.zst"
    SQUASHFS = ".squashfs"

    @classmethod
    def of(cls, path: Path) -> PackKind:
        """Return the kind that the name of a file asks for; raises `InputError`."""
        found = next((kind for kind in cls if path.name.endswith(kind.value)), None)
        if found is None:
            hint = f"write `{path}{cls.TAR.value}`, or `{path}{cls.SQUASHFS.value}` to mount it"
            raise InputError(f"`{path}` is not the name of a pack", hint=hint)
        return found


# What each program comes with, as the systems of clusters name the package.
_PACKAGES = {
    "zstd": "zstd",
    "sqfstar": "squashfs-tools",
    "unsquashfs": "squashfs-tools",
    "squashfuse": "squashfuse",
    "fusermount": "fuse",
}


@frozen(kw_only=True)
class PackFacts:
    """What a pack says of itself.

    `id` is the sha256 of the file up to what it says, `bytes` what it takes unpacked, and `interpreter` the
    Python outside it that it runs on. `set` and `unset` are variables that programs in it need.
    """

    id: str
    environment: str
    torch: str | None
    python: str
    interpreter: str
    platform: str
    lock: str | None = None
    files: int
    bytes: int
    set: Mapping[str, str] = field(default_factory=dict, hash=False)
    unset: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """Return the `torchenv.pack/1` document."""
        return {"schema": SCHEMA, **plain(self)}

    @classmethod
    def read(cls, path: Path) -> PackFacts:
        """Read what a pack says; raises `InputError` for a file that is none, or that was cut short."""
        try:
            text = _read_end(path)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
        if text is None:
            hint = "copy it whole, or make it again: see `torchenv help pack`"
            raise InputError(f"`{path}` is not a pack, or was cut short", hint=hint)
        table = Table.from_json(text, str(path))
        if (schema := table.get("schema", str)) != SCHEMA:
            hint = "update torchenv on this machine, or pack it again with this version"
            raise table.wrong("schema", f"is {schema}, and this torchenv reads {SCHEMA}", hint)
        # It names the directory that the pack is unpacked in, and what is no pack's is never deleted.
        if not re.fullmatch("[0-9a-f]{64}", digest := table.get("id", str)):
            raise table.wrong("id", "is not a sha256", "make it again: see `torchenv help pack`")
        variables = table.table("set")
        return cls(
            id=digest,
            environment=table.get("environment", str),
            torch=table.maybe("torch", str),
            python=table.get("python", str),
            interpreter=table.get("interpreter", str),
            platform=table.get("platform", str),
            lock=table.maybe("lock", str),
            files=table.get("files", int),
            bytes=table.get("bytes", int),
            set={name: variables.get(name, str) for name in variables},
            unset=table.strings("unset"),
        )


def _read_end(path: Path) -> str | None:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < _END.size:
            return None
        file.seek(size - _END.size)
        length, mark = _END.unpack(file.read(_END.size))
        if mark != _MARK or length > size - _END.size:
            return None
        file.seek(size - _END.size - length)
        return file.read(length).decode("utf-8", "replace")


def write_pack(
    path: Path,
    directory: Path,
    programs: Programs,
    change: Callable[[str, bytes], bytes | None],
    make_facts: Callable[[str, int, int], PackFacts],
) -> PackFacts:
    """Write a directory as one file, which appears when it is whole, and return what it says of itself.

    Nothing is replaced, also not what appeared under its name meanwhile.

    `change` gets the name and the content of each file in `bin` and returns what is packed, or None to leave
    it out; `make_facts` gets the digest, the number of files and their bytes. Raises `ToolFailed` where a
    program is missing or fails.
    """
    command = _writer(PackKind.of(path), draft := path.with_name(f".{path.name}.new"))
    try:
        # The program would say it in its own words, once all is read.
        draft.write_bytes(b"")
        draft.unlink()
    except OSError as error:
        hint = "name a file in another directory"
        raise InputError(f"`{path}` cannot be written: {error.strerror or error}", hint=hint) from None
    try:
        count = size = 0
        with (
            programs.feed(command, f"write {path}") as pipe,
            tarfile.open(fileobj=pipe, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            for member in _list_members(directory, archive):
                count, size = count + 1, size + _add(member, directory, archive, change)
        with draft.open("r+b") as file:
            facts = make_facts(file_digest(file, "sha256").hexdigest(), count, size)
            said = json.dumps(facts.to_document()).encode()
            file.seek(0, os.SEEK_END)
            file.write(_FRAME.pack(_SKIPPED, len(said) + _END.size) + said + _END.pack(len(said), _MARK))
            file.flush()
            os.fsync(file.fileno())
        if not Disk().publish(draft, path):
            raise refuse_taken(path)
    finally:
        draft.unlink(missing_ok=True)
    return facts


def refuse_taken(path: Path) -> InputError:
    """Return the error that says that a pack's name is taken."""
    hint = f"name another file that ends in {PackKind.of(path).value}"
    return InputError(f"`{path}` already exists", hint=hint)


def _writer(kind: PackKind, draft: Path) -> Command:
    match kind:
        case PackKind.TAR:
            return Command((find_program("zstd"), "-q", "-T0", "-f", "-o", str(draft)))
        case PackKind.SQUASHFS:
            quiet = ("-quiet", "-no-progress", "-comp", "zstd", "-all-root")
            return Command((find_program("sqfstar"), *quiet, str(draft)))


def _list_members(directory: Path, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for folder, names, files in os.walk(directory):
        names.sort()
        linked = [name for name in names if Path(folder, name).is_symlink()]
        for name in sorted((*files, *names)):
            path = Path(folder, name)
            member = archive.gettarinfo(path, path.relative_to(directory).as_posix())
            # What is no file, folder or link, such as a socket, has no place in a pack.
            if member is not None:
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                if member.issym():
                    member.linkname = _move_link(member, Path(os.path.realpath(directory)))
                yield member
        names[:] = [name for name in names if name not in linked]


def _move_link(member: tarfile.TarInfo, directory: Path) -> str:
    """Return what a link says wherever it is unpacked: a relative path inside, an absolute one outside."""
    parent = (directory / member.name).parent
    goal = os.path.normpath(parent / member.linkname)
    return os.path.relpath(goal, parent) if Path(goal).is_relative_to(directory) else goal


def _add(
    member: tarfile.TarInfo,
    directory: Path,
    archive: tarfile.TarFile,
    change: Callable[[str, bytes], bytes | None],
) -> int:
    path = directory / member.name
    if not member.isreg():
        archive.addfile(member)
        return 0
    if Path(member.name).parent.name in ("bin", "Scripts"):
        content = change(member.name, path.read_bytes())
        if content is None:
            return 0
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
        return member.size
    with path.open("rb") as file:
        archive.addfile(member, file)
    return member.size


def unpack(path: Path, directory: Path, programs: Programs) -> None:
    """Unpack into a directory that does not exist yet.

    Raises `InputError` for a damaged file, `ToolFailed` where a program is missing or fails.
    """
    match PackKind.of(path):
        case PackKind.TAR:
            command = Command((find_program("zstd"), "-q", "-d", "-c", str(path)))
            directory.mkdir()
            try:
                with (
                    programs.drain(command, f"unpack {path}") as pipe,
                    tarfile.open(fileobj=pipe, mode="r|") as archive,
                ):
                    if hasattr(tarfile, "tar_filter"):
                        # Nothing gets out of the directory; Python has this from 3.11.4 on.
                        archive.extraction_filter = tarfile.tar_filter
                    archive.extractall(directory)  # noqa: S202 - filtered above
                    # What follows the last member is the archive's end, without which zstd would complain.
                    while pipe.read(1 << 20):
                        pass
            except (tarfile.TarError, EOFError) as error:
                hint = "copy it again, or make it again: see `torchenv help pack`"
                raise InputError(f"`{path}` is damaged: {error}", hint=hint) from None
        case PackKind.SQUASHFS:
            quiet = ("-quiet", "-no-progress", "-no-xattrs", "-force")
            command = Command((find_program("unsquashfs"), *quiet, "-dest", str(directory), str(path)))
            programs(command).check(f"unpack {path}")


@contextmanager
def mount(path: Path, directory: Path, programs: Programs) -> Iterator[None]:
    """Mount a squashfs on an empty directory as this user; raises `ToolFailed` where that cannot be."""
    if PackKind.of(path) is not PackKind.SQUASHFS:
        hint = "leave out --mount, or pack it as FILE.squashfs"
        raise InputError(f"`{path}` cannot be mounted", hint=hint)
    if not os.path.exists(Path("/dev/fuse")):
        raise ToolFailed("this machine has no /dev/fuse", hint="leave out --mount to unpack it")
    program, end = find_program("squashfuse"), find_program("fusermount")
    programs(Command((program, "-o", "ro", str(path), str(directory)))).check(f"mount {path}")
    try:
        yield
    finally:
        # Lazily: a process that the command left behind may still have files of it open.
        programs(Command((end, "-u", "-z", str(directory))))


def find_program(name: str) -> str:
    """Return the path of a program that packs or unpacks; raises `ToolFailed` naming its package."""
    found = shutil.which(name) or (shutil.which(f"{name}3") if name == "fusermount" else None)
    if found is None:
        package = _PACKAGES[name]
        needed = f"{package} 4.5 or newer" if name == "sqfstar" else package
        raise ToolFailed(
            f"there is no program `{name}` on this machine",
            hint=f"install {needed}" + _name_other_kind(name),
        )
    return found


def _name_other_kind(name: str) -> str:
    match name:
        case "sqfstar":
            return f", or name a file that ends in {PackKind.TAR.value}"
        case "zstd":
            return f", or use a pack that ends in {PackKind.SQUASHFS.value}"
        case "squashfuse" | "fusermount":
            return ", or leave out --mount to unpack it"
        case _:
            return ""
