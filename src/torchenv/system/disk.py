"""The disk under the workspace: what is done to it, and what it says when it refuses."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from torchenv.errors import WorkspaceError
from torchenv.system.mutex import node_name, try_to_lock

if TYPE_CHECKING:
    import io

# Windows counts 260 with the closing zero, unless LongPathsEnabled is set in its registry.
WINDOWS_PATH_LIMIT = 259

# What a disk says that is full, or on which this user has used up a quota.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


# What is kept back: enough for one command that frees a disk or goes back on it.
_RESERVED_FILES = 8
_RESERVED_BYTES = 1 << 15

T = TypeVar("T")


class Disk:
    """The few ways in which the workspace is changed; a test puts one in its place that stops half way.

    Below `fence` no link is followed: each folder on the way is opened by a handle of the one before it, and
    a link in the place of one is refused. So a workspace from someone else leads to no file outside it.
    Raises `WorkspaceError` where the disk refuses.
    """

    fence: Path | None = None
    # Where some room is kept back, which a full disk is given so that one can free it and go back.
    reserve: Path | None = None

    def try_to_lock(self, handle: int) -> bool | None:
        """Try once to lock an open file against others; None where its file system knows no locks."""
        return try_to_lock(handle)

    def node(self) -> str:
        """Return what tells this machine from others that share the disk, also those of one image."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        except OSError:
            return node_name()

    def host(self) -> str:
        """Return what stays of this machine when it is started anew; empty where nothing tells."""
        try:
            return f"{node_name()} {Path('/etc/machine-id').read_text('ascii').strip()}"
        except (OSError, UnicodeDecodeError):
            return ""

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it, where it is not there."""
        with explain_refusals(path):
            self.with_room(lambda: self._make_directory(path))

    def make_new_directory(self, path: Path) -> bool:
        """Make a directory and those above it, or say that the name is taken."""
        self.make_directory(path.parent)
        with explain_refusals(path):
            try:
                self.with_room(path.mkdir)
            except FileExistsError:
                return False
        return True

    def write(self, path: Path, text: str) -> None:
        """Write a new file in the place of what has this name, and wait until it is on the disk."""
        with explain_refusals(path):
            self.with_room(lambda: self._write(path, text))

    def overwrite(self, path: Path, text: str) -> None:
        """Write into the file that is there, where another has no room; a failure leaves what it held."""
        with explain_refusals(path), self._open_within(path.parent) as folder:
            handle = os.open(_name(path, folder), os.O_RDWR | _NO_LINK, dir_fd=folder)
            with open(handle, "r+b", buffering=0) as file:  # noqa: PTH123
                before = file.read()
                try:
                    _replace_content(file, text.encode("utf-8", "surrogateescape"))
                except OSError:
                    _replace_content(file, before)
                    raise

    def rename(self, old: Path, new: Path) -> None:
        """Put one in the place of the other at once: whoever looks sees the old or the new."""
        with (
            explain_refusals(old),
            self._open_within(old.parent) as source,
            self._open_within(new.parent) as goal,
        ):
            self.with_room(
                lambda: os.replace(_name(old, source), _name(new, goal), src_dir_fd=source, dst_dir_fd=goal)
            )
            _settle(new.parent)

    @contextmanager
    def hold_draft(self, path: Path) -> Iterator[Path]:
        """Yield an empty file beside a place, for a program to write; it is gone after the block.

        It is held, so that the next run for the same place can tell what a killed one left and delete it.
        """
        name = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{16}\.torchenv-new")
        _clear_drafts(path.parent, name)
        draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}.torchenv-new")
        with explain_refusals(path):
            handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666)
        try:
            # Windows lets no other program write what is locked, and deletes nothing that is open.
            if os.name == "posix":
                try_to_lock(handle)
            yield draft
        finally:
            os.close(handle)
            self.delete(draft)

    def publish(self, draft: Path, path: Path) -> bool:
        """Put a finished file under its name, or say that it is taken; nothing is ever replaced."""
        with explain_refusals(path):
            try:
                os.link(draft, path, follow_symlinks=False)
            except FileExistsError:
                return False
            except (OSError, NotImplementedError):
                # Some file systems know no second name of a file: there the name is taken first.
                try:
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666))
                except FileExistsError:
                    return False
                draft.replace(path)
            _settle(path.parent)
        return True

    def put(self, path: Path, text: str) -> None:
        """Put a file in place at once: whoever looks sees what was there or all of this."""
        _clear_drafts(path.parent)
        with explain_refusals(path):
            while not self.with_room(lambda: self._put(path, text)):
                pass

    def link(self, at: Path, target: Path) -> bool:
        """Make a symbolic link to a directory, or say that links are not allowed here."""
        try:
            with self._open_within(at.parent) as folder:
                self.with_room(
                    lambda: os.symlink(target, _name(at, folder), target_is_directory=True, dir_fd=folder)
                )
        except OSError:
            return False
        return True

    def delete(self, path: Path) -> bool:
        """Delete a file, a link or a whole directory, and say whether it is gone.

        Of a link the link goes, and never what it leads to.
        """
        if not os.path.lexists(path):
            return True
        # Another may delete it at the same moment: then it is gone as well.
        with explain_refusals(path), suppress(FileNotFoundError), self._open_within(path.parent) as folder:
            name = _name(path, folder)
            if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                # Only what deletes a directory pays for this import.
                import shutil

                shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
            else:
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
        return not os.path.lexists(path)

    def list(self, path: Path) -> tuple[str, ...]:
        """Return the names in a directory, in order; none where there is no such directory."""
        try:
            with explain_refusals(path), self._open_within(path) as folder:
                return tuple(sorted(os.listdir(path if folder is None else folder)))  # noqa: PTH208
        except WorkspaceError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return ()
            raise

    def open_to_lock(self, path: Path, *, make: bool = True) -> int:
        """Open a file that is locked by its handle; with `make` it is made where it is not there."""
        with explain_refusals(path), self._open_within(path.parent) as folder:
            flags = os.O_RDWR | _NO_LINK | (os.O_CREAT if make else 0)
            handle = self.with_room(lambda: os.open(_name(path, folder), flags, 0o666, dir_fd=folder))
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                os.close(handle)
                raise _refuse_link(path, "a file with other names")
            return handle

    def free_space(self, path: Path) -> int:
        """Return the bytes that are free where `path` is or would be."""
        import shutil

        with explain_refusals(path):
            while not os.path.exists(path) and path != path.parent:
                path = path.parent
            return shutil.disk_usage(path).free

    def measure(self, path: Path) -> int:
        """Return the bytes that deleting a directory gives back.

        A file with a link elsewhere gives nothing. What is shared by cloning cannot be told, and counts.
        """
        linked: dict[tuple[int, int], int] = {}
        size = 0
        for folder, _, names in os.walk(path):
            for name in names:
                with suppress(OSError):
                    found = os.lstat(f"{folder}{os.sep}{name}")
                    file = (found.st_dev, found.st_ino)
                    linked[file] = linked.get(file, 0) + 1
                    if linked[file] == found.st_nlink:
                        size += getattr(found, "st_blocks", -(-found.st_size // 512)) * 512
        return size

    def with_room(self, change: Callable[[], T]) -> T:
        """Make a change of the disk, once more with the room that was kept back where there is none left."""
        try:
            return change()
        except OSError as error:
            if error.errno not in NO_ROOM or not self._release_reserve():
                raise
            return change()

    def make_reserve(self) -> None:
        """Keep some room back: a few files that the next full disk is given."""
        reserve = self.reserve
        # A disk that is full now, or changed by nobody, keeps none: that stops no command.
        with suppress(OSError, WorkspaceError):
            if reserve is None or len(self.list(reserve)) >= _RESERVED_FILES:
                return
            with self._open_within(reserve, make=True) as folder:
                for n in range(_RESERVED_FILES):
                    name = _name(reserve / str(n), folder)
                    with suppress(FileExistsError):
                        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
                        handle = os.open(name, flags, 0o600, dir_fd=folder)
                        try:
                            # Of what compresses to nothing, nothing would be kept back.
                            os.write(handle, os.urandom(_RESERVED_BYTES))
                        finally:
                            os.close(handle)

    def _release_reserve(self) -> bool:
        released = False
        if self.reserve is not None:
            with suppress(OSError, WorkspaceError), self._open_within(self.reserve) as folder:
                for name in os.listdir(self.reserve if folder is None else folder):  # noqa: PTH208
                    if name.isdecimal():
                        os.unlink(_name(self.reserve / name, folder), dir_fd=folder)
                        released = True
        return released

    def _make_directory(self, path: Path) -> None:
        if self.fence is None or not path.is_relative_to(self.fence):
            path.mkdir(parents=True, exist_ok=True)
            return
        self.fence.mkdir(parents=True, exist_ok=True)
        with self._open_within(path, make=True):
            pass

    def _put(self, path: Path, text: str) -> bool:
        """Put a file in place; False where another run cleared its draft before it was held."""
        # Two may put the same file at once: each writes its own beside it.
        beside = _name_draft(path)
        try:
            with self._create(beside, text) as handle:
                if try_to_lock(handle) is False or not os.path.lexists(beside):
                    return False
                if os.name == "posix":
                    self.rename(beside, path)
            if os.name != "posix":
                self.rename(beside, path)
        finally:
            # An interrupt comes at any moment, and this may be a directory of the user's.
            self.delete(beside)
        return True

    def _write(self, path: Path, text: str) -> None:
        with self._open_within(path.parent) as folder, suppress(FileNotFoundError):
            # What is there may be a link, or another name of a file of the user's: it is never written into.
            os.unlink(_name(path, folder), dir_fd=folder)
        with self._create(path, text):
            pass

    @contextmanager
    def _create(self, path: Path, text: str) -> Iterator[int]:
        """Make a file that was not there, and yield its handle once it is on the disk."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
        with self._open_within(path.parent) as folder:
            handle = os.open(_name(path, folder), flags, 0o666, dir_fd=folder)
            with open(handle, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:  # noqa: PTH123
                file.write(text)
                file.flush()
                os.fsync(handle)
                yield handle

    @contextmanager
    def _open_within(self, directory: Path, *, make: bool = False) -> Iterator[int | None]:
        """Yield the handle of a directory below the fence; None elsewhere, and where there are no handles."""
        fence = self.fence
        if fence is None or not directory.is_relative_to(fence):
            yield None
            return
        parts = directory.relative_to(fence).parts
        if ".." in parts:
            raise _refuse_link(directory, "a path out of the workspace")
        if not _HAS_HANDLES:
            for n in range(1, len(parts) + 1):
                _refuse_reparse_point(fence.joinpath(*parts[:n]), make=make)
            yield None
            return
        handle = os.open(fence, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for n, part in enumerate(parts, 1):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=handle)
                try:
                    inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
                except OSError as error:
                    if error.errno in (errno.ELOOP, errno.ENOTDIR):
                        raise _refuse_link(fence.joinpath(*parts[:n]), "no directory") from None
                    raise
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)


def _replace_content(file: io.FileIO, content: bytes) -> None:
    file.seek(0)
    written = 0
    while written < len(content):
        written += file.write(content[written:])
    file.truncate(len(content))
    os.fsync(file.fileno())


_HAS_HANDLES = os.open in os.supports_dir_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def _name(path: Path, folder: int | None) -> str:
    return str(path) if folder is None else path.name


def _refuse_link(path: Path, what: str) -> WorkspaceError:
    return WorkspaceError(
        f"`{path}` is {'a link' if path.is_symlink() else what}: torchenv follows no links in a workspace",
        hint="move it away, or name another workspace with `--root DIR`",
    )


def _refuse_reparse_point(path: Path, *, make: bool) -> None:
    if path.is_symlink() or (hasattr(path, "is_junction") and path.is_junction()):
        raise _refuse_link(path, "a link")
    if make:
        path.mkdir(exist_ok=True)


def _settle(directory: Path) -> None:
    # The rename is on the disk once its directory is. Windows does that by itself, and opens no directory.
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class PathLength(NamedTuple):
    """How long the longest path of an environment becomes, in characters."""

    root: int
    longest: int
    limit: int = WINDOWS_PATH_LIMIT

    @property
    def total(self) -> int:
        """The directory, a separator, and the longest path under it."""
        return self.root + 1 + self.longest

    @property
    def fits(self) -> bool:
        """Whether the system opens such a path."""
        return self.total <= self.limit

    @property
    def too_many(self) -> int:
        """How many characters shorter the directory must be."""
        return max(0, self.total - self.limit)

    def __str__(self) -> str:
        return f"{self.root} + 1 + {self.longest} = {self.total} characters, of {self.limit}"


def replace_file(path: Path, content: bytes) -> None:
    """Put a file that the user named in place at once; raises `OSError`, after which the old one is there.

    A link at `path` stays and what it leads to is replaced. The mode stays too; a device is written to.
    """
    path = Path(os.path.realpath(path))
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    before = path.stat() if os.path.exists(path) else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        path.write_bytes(content)
        return
    if before is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    _clear_drafts(path.parent)
    while not _replace(path, content, None if before is None else stat.S_IMODE(before.st_mode)):
        pass
    # It is in place, also in a directory that this user may not list.
    with suppress(OSError):
        _settle(path.parent)


def _replace(path: Path, content: bytes, mode: int | None) -> bool:
    """Put a file in place; False where another run cleared its draft before it was held."""
    beside = _name_draft(path)
    try:
        with beside.open("xb") as file:
            # Held until it has its name, so that another run can tell it from what a killed one left.
            if try_to_lock(file.fileno()) is False or not os.path.lexists(beside):
                return False
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if mode is not None:
                beside.chmod(mode)
            if os.name == "posix":
                beside.replace(path)
        if os.name != "posix":
            beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return True


def _name_draft(path: Path) -> Path:
    return path.with_name(f".torchenv-{os.urandom(8).hex()}.new")


_DRAFT = re.compile(r"\.torchenv-[0-9a-f]{16}\.new")


def _clear_drafts(directory: Path, draft: re.Pattern[str] = _DRAFT) -> None:
    """Delete the drafts that a killed run left in a directory; a failure is of no weight."""
    if os.name != "posix":
        return
    with suppress(OSError):
        for name in os.listdir(directory):  # noqa: PTH208 - a Path for each is felt
            if draft.fullmatch(name):
                with suppress(OSError):
                    handle = os.open(directory / name, os.O_RDWR | _NO_LINK)
                    try:
                        if stat.S_ISREG(os.fstat(handle).st_mode) and try_to_lock(handle):
                            (directory / name).unlink()
                    finally:
                        os.close(handle)


def rewrite_text(path: Path, text: str) -> None:
    """Put a changed text of the user's in place, with the line ends and the mark it had; raises `OSError`."""
    before = path.read_bytes() if os.path.exists(path) else b""
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    content = text.encode("utf-8")
    if b"\r\n" in before and before.count(b"\n") == before.count(b"\r\n"):
        content = content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    replace_file(path, mark + content)


@contextmanager
def explain_refusals(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into a `WorkspaceError` that names the place and the remedy."""
    try:
        yield
    except OSError as error:
        raise make_refusal(path, error) from error


@contextmanager
def suggest(hint: str) -> Iterator[None]:
    """Replace the hint of what the disk refuses: the place is not the workspace."""
    try:
        yield
    except WorkspaceError as error:
        if isinstance(error.__cause__, OSError):
            raise WorkspaceError(error.message, hint=hint) from error.__cause__
        raise


def is_out_of_room(error: WorkspaceError) -> bool:
    """Return whether the disk refused because it is full."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_ROOM


def make_refusal(path: Path, error: OSError) -> WorkspaceError:
    """Describe what the disk refused, and what to do about it."""
    elsewhere = "choose another place with `--root DIR` or TORCHENV_HOME"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            hint = "free some space, for example with `torchenv prune`, or " + elsewhere
            return WorkspaceError(f"{path}: no space is left on its disk", hint=hint)
        case errno.EROFS:
            return WorkspaceError(f"{path}: its disk is read-only", hint=elsewhere)
        case errno.EACCES | errno.EPERM:
            return WorkspaceError(f"{path}: may not be written by this user", hint=elsewhere)
        case _:
            return WorkspaceError(f"{path}: {error.strerror or error}", hint=elsewhere)
