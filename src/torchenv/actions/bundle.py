"""Put all that builds a target into one file, for a machine that has no network."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from hashlib import file_digest
from pathlib import Path
from typing import Any

from torchenv.actions.sources import bring
from torchenv.errors import InputError, ToolFailed, WorkspaceError
from torchenv.index.pages import Download
from torchenv.installers import Installer
from torchenv.installers.tools import list_needed, write_own_wheel
from torchenv.lockfile.lock import Lock
from torchenv.lockfile.lockset import LockedTarget
from torchenv.system.disk import Disk
from torchenv.system.documents import plain
from torchenv.system.process import Command, Programs
from torchenv.system.values import frozen

SCHEMA = "torchenv.bundle/1"

# In each directory that parts are fetched into; one without it is never written to, nor deleted.
_MARK = ".torchenv-parts"

# The Python that torchenv runs with where the target's own is too old for it, or without the GIL.
USUAL_PYTHON = "3.12"
OLDEST_PYTHON = (3, 11)

# Nothing in a bundle tells when it was made: the same parts are the same bytes.
_TIME = 1_767_225_600

Say = Callable[[str], None]


@frozen(kw_only=True)
class BundleOrder:
    """What is to be bundled.

    `lock` is that of the target with the addresses that its files are fetched from, `files` the texts of the
    project that go along by their names, the script among them, and `package_index` where torchenv's own
    packages come from. `fetch_python` fetches an interpreter for a platform into a directory.
    """

    target: LockedTarget
    lock: Lock
    files: Mapping[str, str]
    path: Path
    package_index: str | None
    fetch_python: Callable[[str, str, Path], Path]


@frozen(kw_only=True)
class BundleFile:
    """One file of a bundle, by its place in it."""

    path: str
    sha256: str
    size: int


@frozen(kw_only=True)
class Bundle:
    """What a bundle holds. `interpreters` are the Pythons in it; one that could not be fetched is missing."""

    target: str
    torch: str | None
    backend: str | None
    platform: str
    python: str
    lock: str | None
    torchenv: str
    uv: str
    interpreters: tuple[str, ...]
    files: tuple[BundleFile, ...]

    def to_document(self) -> dict[str, Any]:
        """Return the `torchenv.bundle/1` document."""
        return {"schema": SCHEMA, **plain(self)}


def choose_tool_python(python: str) -> str:
    """Return the Python that torchenv itself runs with beside a target: the target's own where it can."""
    minor = tuple(map(int, python.rstrip("t").split(".")))
    return USUAL_PYTHON if python.endswith("t") or minor < OLDEST_PYTHON else python


def bundle(
    order: BundleOrder, installer: Installer, programs: Programs, download: Download, say: Say
) -> Bundle:
    """Fetch all parts beside the file, then write it; after a run that was stopped only what is missing.

    An interpreter that cannot be fetched is named, and must be on the machine. Raises `InputError` for a
    target of Windows and for a file that is there, `IndexFailed` where another part cannot be had.
    """
    target = order.target
    _refuse(order)
    parts = order.path.with_name(f"{order.path.name}.parts")
    _make_parts(parts)
    tool_python = choose_tool_python(target.python)
    needed = list_needed()
    tools = installer.lock(needed.request(tool_python, target.platform, order.package_index))
    wheels = bring(
        order.lock, parts / "wheels", download, say, python=target.python, platform=target.platform
    )
    say("fetching torchenv, uv and what they need")
    brought = bring(
        tools, parts / "tools", download, lambda _: None, python=tool_python, platform=target.platform
    )
    own = write_own_wheel(parts / "tools")
    interpreters = dict(_fetch_interpreters({target.python, tool_python}, order, programs, parts, say))
    (parts / "tools.txt").write_text(_require((own, *brought)), "utf-8")
    for name, text in order.files.items():
        (parts / name).write_text(text, "utf-8")
    files = [*wheels, *brought, own, *interpreters.values(), parts / "tools.txt"]
    files += [parts / name for name in order.files]
    made = Bundle(
        target=target.name,
        torch=target.torch,
        backend=target.backend,
        platform=target.platform,
        python=target.python,
        lock=target.lock,
        torchenv=own.name.split("-")[1],
        uv=tools.versions["uv"],
        interpreters=tuple(interpreters),
        files=tuple(_describe(file, parts) for file in sorted(files)),
    )
    (parts / "bundle.json").write_text(json.dumps(made.to_document(), indent=2) + "\n", "utf-8")
    sums = "".join(f"{file.sha256}  {file.path}\n" for file in made.files)
    (parts / "SHA256SUMS").write_text(sums, "utf-8")
    say(f"writing {order.path}")
    _write([*files, parts / "bundle.json", parts / "SHA256SUMS"], parts, order)
    shutil.rmtree(parts)
    return made


def _make_parts(parts: Path) -> None:
    """Make the directory that parts are fetched into; raises `InputError` where its name is taken."""
    disk = Disk()
    try:
        is_new = disk.make_new_directory(parts)
    except WorkspaceError as error:
        raise InputError(error.message, hint="name a file in another directory") from None
    if is_new:
        disk.write(parts / _MARK, "torchenv fetches the parts of a bundle here, and deletes them\n")
    elif parts.is_symlink() or not os.path.isfile(parts / _MARK):
        raise InputError(
            f"`{parts}` already exists and does not hold the parts of a bundle",
            hint="name another file, or move that directory",
        )


def _refuse_taken(path: Path) -> InputError:
    return InputError(f"`{path}` already exists", hint="name another file, or delete that one")


def _refuse(order: BundleOrder) -> None:
    if os.path.lexists(order.path):
        raise _refuse_taken(order.path)
    if not os.path.isdir(order.path.parent):
        raise InputError(f"there is no directory {order.path.parent}", hint="make it, or name another")
    if order.target.platform.startswith("windows"):
        name = order.target.name
        raise InputError(
            f"target {name} is for {order.target.platform}, and the script of a bundle for Linux and macOS",
            hint=f"fetch the wheels with `torchenv fetch {name} wheels`, then build there with"
            f" `torchenv sync {name} --offline --wheels wheels`",
        )


def _fetch_interpreters(
    pythons: set[str], order: BundleOrder, programs: Programs, parts: Path, say: Say
) -> Iterator[tuple[str, Path]]:
    for python in sorted(pythons):
        archive = parts / f"python-{python}.tar.gz"
        if not os.path.isfile(archive):
            folder = parts / f".python-{python}"
            shutil.rmtree(folder, ignore_errors=True)
            try:
                found = order.fetch_python(python, order.target.platform, folder)
            except ToolFailed as error:
                say(f"note: {error.message}: the machine must have python{python} on its PATH")
                continue
            draft = archive.with_suffix(".new")
            tar = ("tar", "-czf", str(draft), "-C", str(found.parent), found.name)
            programs(Command(tar)).check(f"archive Python {python}")
            draft.replace(archive)
            shutil.rmtree(folder)
        yield python, archive


def _require(wheels: tuple[Path, ...]) -> str:
    """Return the requirements of torchenv itself, each by its file and hash."""
    lines = []
    for path in wheels:
        if path.suffix != ".whl":
            hint = "bundle on a machine of that platform, or make its wheel and put it on the package index"
            raise ToolFailed(f"torchenv needs {path.name}, which has no wheel for that platform", hint=hint)
        name, version = path.name.split("-")[:2]
        lines.append(f"{name}=={version} --hash=sha256:{_digest(path)}\n")
    return "".join(sorted(lines))


def _describe(path: Path, parts: Path) -> BundleFile:
    return BundleFile(path=path.relative_to(parts).as_posix(), sha256=_digest(path), size=path.stat().st_size)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _write(files: list[Path], parts: Path, order: BundleOrder) -> None:
    draft = order.path.with_name(f".{order.path.name}.new")

    def settle(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = _TIME
        member.mode = 0o755 if member.name.endswith(".sh") else 0o644
        return member

    try:
        with draft.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w|") as archive:
                for path in files:
                    name = f"{order.target.name}/{path.relative_to(parts).as_posix()}"
                    archive.add(path, name, filter=settle)
            file.flush()
            os.fsync(file.fileno())
        # Gathering took minutes: what has the name by now is another's.
        if not Disk().publish(draft, order.path):
            raise _refuse_taken(order.path)
    except OSError as error:
        raise InputError(f"{order.path} cannot be written: {error.strerror or error}") from None
    finally:
        draft.unlink(missing_ok=True)
