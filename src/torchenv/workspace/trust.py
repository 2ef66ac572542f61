"""Whether a workspace that nobody named may be changed and run from, and what speaks against it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from torchenv.errors import TorchenvError
from torchenv.system.looking import find_paths
from torchenv.system.values import frozen

# What a workspace is known by, in a file of that name in it.
IDENTITY_FILE_NAME = "identity"
MANIFEST_FILE_NAME = "manifest.toml"
_IDENTITY = re.compile(r"[0-9a-f]{32}")

# Bytes of a git index that are read at most.
_INDEX_LIMIT = 1 << 28


@frozen
class OtherOwner:
    """It belongs to another user, by name or number."""

    owner: str

    def __str__(self) -> str:
        return f"belongs to another user, `{self.owner}`"


@frozen
class FromRepository:
    """Its manifest is under version control, in the repository at `repository`."""

    repository: Path

    def __str__(self) -> str:
        return f"came with the repository `{self.repository}`"


@frozen
class FromElsewhere:
    """Its manifest was written at another place, or names none, and this user has never changed it."""

    was: str | None

    def __str__(self) -> str:
        place = "does not say where it was made" if self.was is None else f"was made at `{self.was}`"
        return f"{place}, and this user has never changed it"


@frozen
class Unproven:
    """Its manifest names this place, which whoever packed it could guess, and nothing else shows it."""

    def __str__(self) -> str:
        return (
            "may have been copied or unpacked: nothing shows that it was made here, and this user has never"
            " changed it"
        )


Suspicion = OtherOwner | FromRepository | FromElsewhere | Unproven


class TrustRecord:
    """The workspaces that a user accepted or changed: one small file each in the user's own state folder.

    `folder` is None where the user has none: nothing is known then. Reading raises nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def is_accepted(self, root: Path) -> bool:
        """Return whether the user accepted the workspace at this place."""
        path = self._find_accepted(root)
        return path is not None and _read(path) == f"{os.path.realpath(root)}\n"

    def accept(self, root: Path) -> None:
        """Record that the user accepts the workspace at this place; raises `OSError`."""
        path = self._find_accepted(root)
        if path is None:
            raise FileNotFoundError("this user has no home directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, f"{os.path.realpath(root)}\n")

    def knows(self, identity: str | None) -> bool:
        """Return whether this user has changed the workspace of this identity before."""
        path = self._find_known(identity)
        return path is not None and _read(path) is not None

    def remember(self, identity: str | None, root: Path) -> None:
        """Record that this user changed a workspace; a failure is of no weight."""
        path = self._find_known(identity)
        if path is not None and _read(path) is None:
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, f"{os.path.realpath(root)}\n")

    def _find_accepted(self, root: Path) -> Path | None:
        if self._folder is None:
            return None
        digest = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()
        return self._folder / "trusted" / digest[:32]

    def _find_known(self, identity: str | None) -> Path | None:
        # It comes from a file that may be anybody's, and becomes a name.
        if self._folder is None or identity is None or not _IDENTITY.fullmatch(identity):
            return None
        return self._folder / "workspaces" / identity


def suspect(root: Path, record: TrustRecord, recorded_root: Callable[[], str | None]) -> Suspicion | None:
    """Return what speaks against a workspace that the upward search found; None where nothing does.

    `recorded_root` returns where its manifest was written last, None where that tells no place.
    """
    if record.is_accepted(root):
        return None
    with suppress(OSError):
        if (owner := _find_other_owner(root)) is not None:
            return OtherOwner(owner)
    if (repository := _find_repository(root)) is not None:
        return FromRepository(repository)
    try:
        was = recorded_root()
    except TorchenvError:
        # The command itself says what is wrong with the manifest.
        return None
    if was is None and not os.path.lexists(root / MANIFEST_FILE_NAME):
        return None
    if record.knows(read_identity(root)):
        return None
    if was is not None and _is_same_place(was, root):
        return None if is_sealed(root) else Unproven()
    return FromElsewhere(was if was is not None and Path(was).is_absolute() else None)


def _is_same_place(was: str, root: Path) -> bool:
    # Links in what the manifest says are not followed: /proc/self/cwd leads to wherever the user is.
    places = {os.path.normpath(root), os.path.realpath(root)}
    return Path(was).is_absolute() and os.path.normpath(was) in places


def make_identity() -> str:
    """Return what a new workspace will be known by."""
    return os.urandom(16).hex()


def seal_identity(identity: str, root: Path) -> str:
    """Return the text of the file that holds an identity; it shows that the workspace was made where it is.

    A directory that is copied or unpacked gets a number of its own from the file system, which nobody who
    packs it can choose. It stays when the directory is renamed or mounted elsewhere.
    """
    return f"{identity} {os.stat(root).st_ino}\n"  # noqa: PTH116


def read_identity(root: Path) -> str | None:
    """Return what a workspace is known by; None where nothing valid tells."""
    text = (_read(root / IDENTITY_FILE_NAME) or "").partition(" ")[0].strip()
    return text if _IDENTITY.fullmatch(text) else None


def is_sealed(root: Path) -> bool:
    """Return whether the identity of a workspace was written for the directory that it lies in."""
    identity = read_identity(root)
    with suppress(OSError):
        return identity is not None and _read(root / IDENTITY_FILE_NAME) == seal_identity(identity, root)
    return False


def _find_other_owner(root: Path) -> str | None:
    """Return who owns a workspace, or the link that leads to it, where that is another user."""
    if os.name != "posix":
        return None
    for status in (root.lstat(), root.stat()):
        if status.st_uid != os.geteuid():
            # Only what is suspicious pays for this import.
            import pwd

            try:
                return pwd.getpwuid(status.st_uid).pw_name
            except KeyError:
                return str(status.st_uid)
    return None


def _find_repository(root: Path) -> Path | None:
    """Return the repository in which the manifest of a workspace is under version control."""
    # A repository may hold a link in place of the workspace, and the workspace elsewhere.
    for place in dict.fromkeys((root, Path(os.path.realpath(root)))):
        if (repository := _find_repository_above(place / MANIFEST_FILE_NAME)) is not None:
            return repository
    return None


def _find_repository_above(manifest: Path) -> Path | None:
    # The workspace itself comes first: it may be a submodule.
    for directory in manifest.parents:
        if indexes := _read_indexes(directory):
            name = os.fsencode(manifest.relative_to(directory).as_posix()).lower()
            return directory if any(_is_listed(index, name) for index in indexes) else None
    return None


def _read_indexes(directory: Path) -> list[bytes]:
    """Read the index of the repository at a directory, in its parts where `core.splitIndex` is set."""
    git = directory / ".git"
    with suppress(OSError):
        # gitdir: ../.git/worktrees/x, in a worktree and in a submodule
        pointer = _read(git) if os.path.isfile(git) else None
        if pointer is not None:
            git = directory / pointer.partition("gitdir:")[2].strip()
        return [_read_index(path) for path in (git / "index", *find_paths(git, "sharedindex.*"))]
    return []


def _read_index(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_INDEX_LIMIT)


def _is_listed(index: bytes, name: bytes) -> bool:
    # DIRC, the version, the number of entries; names end with a zero. Case is no difference on some disks.
    if index[4:8] != b"\0\0\0\4":
        return name + b"\0" in index.lower()
    return any(found.lower() == name for found in _expand_names(index))


def _expand_names(index: bytes) -> list[bytes]:
    """Return the names of an index of version 4, which leaves out what a name shares with the one before."""
    names = []
    name, at = b"", 12
    with suppress(IndexError, ValueError):
        for _ in range(int.from_bytes(index[8:12], "big")):
            # 40 bytes of times and modes, 20 of a digest, 2 of flags, of which one says that 2 more follow.
            at += 64 if index[at + 60] & 0x40 else 62
            byte = index[at]
            shared = byte & 0x7F
            while byte & 0x80:
                at += 1
                byte = index[at]
                shared = ((shared + 1) << 7) | (byte & 0x7F)
            end = index.index(b"\0", at + 1)
            name = name[: len(name) - shared] + index[at + 1 : end]
            names.append(name)
            at = end + 1
    return names


def _read(path: Path) -> str | None:
    with suppress(OSError, ValueError), path.open(encoding="utf-8", errors="surrogateescape") as file:
        return file.read(8192)
    return None


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    beside.write_text(text, encoding="utf-8", errors="surrogateescape")
    beside.replace(path)
