"""Make an environment one file, and open such a file again on the disk of the machine that runs it."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torchenv.actions.run import ProgramEntry, directory_of
from torchenv.environment.inspect import Layout, describe
from torchenv.errors import InputError, NothingSuits, ToolFailed, WorkspaceError
from torchenv.system.looking import find_paths
from torchenv.system.mutex import try_to_lock, unlock
from torchenv.system.names import refuse_divided
from torchenv.system.packfile import (
    PackFacts,
    PackKind,
    find_program,
    mount,
    refuse_taken,
    unpack,
    write_pack,
)
from torchenv.system.process import Command, Programs
from torchenv.workspace.records import Environment, EnvironmentKind
from torchenv.workspace.store import Store

Say = Callable[[str], None]

# Seconds between two looks at whether another process has finished.
_LOOK = 0.1


def pack(
    environment: Environment, path: Path, store: Store, *, programs: Programs, platform: str, say: Say
) -> PackFacts:
    """Write an environment as one file that starts anywhere its interpreter is.

    Its scripts find the Python beside them, and what would activate the original is left out. Raises
    `InputError` for the name of the file, `NothingSuits` for what is not a virtual environment.
    """
    kind = PackKind.of(path)
    if os.path.lexists(path):
        raise refuse_taken(path)
    if not os.path.isdir(path.parent):
        raise InputError(f"there is no directory {path.parent}", hint="make it, or name another")
    find_program("zstd" if kind is PackKind.TAR else "sqfstar")
    directory = directory_of(environment, store)
    installation = describe(directory)
    if installation.layout is not Layout.VENV or installation.interpreter is None:
        raise NothingSuits(
            f"environment {environment} is not a virtual environment",
            hint=f"build one with `torchenv create --like {environment.number}`, and pack that",
        )
    if environment.kind is EnvironmentKind.BUILT:
        _compile(installation.interpreter, installation.site_packages, programs, say)
    around = environment.activation

    def make_facts(digest: str, files: int, size: int) -> PackFacts:
        return PackFacts(
            id=digest,
            environment=environment.name,
            torch=environment.torch,
            python=environment.python.version,
            interpreter=str(_find_base(directory)),
            platform=platform,
            lock=environment.lock,
            files=files,
            bytes=size,
            set=around.set if around else {},
            unset=around.unset if around else (),
        )

    say(f"packing {directory}")
    return write_pack(path, directory, programs, _relocate_in(directory), make_facts)


def _compile(python: Path, sites: tuple[Path, ...], programs: Programs, say: Say) -> None:
    """Compile what is imported: from a file that is only read no start could keep it."""
    say("compiling its modules")
    argv = (str(python), "-I", "-m", "compileall", "-q", "-j", "0", *map(str, sites))
    # A file for another Python, such as a template, cannot be compiled and is no trouble.
    programs(Command(argv))


def _find_base(directory: Path) -> Path:
    """Return the interpreter outside the environment that it is started by."""
    path = directory / "bin" / "python"
    while path.is_symlink() and path.is_relative_to(directory):
        path = path.parent / path.readlink()
        path = Path(os.path.normpath(path))
    return path


# What a shell starts such a script by, wherever it lies: the Python beside it. To Python it is a string.
_BESIDE = b'#!/bin/sh\n\'\'\'exec\' "$(dirname -- "$(realpath -- "$0")")/%s" "$0" "$@"\n\' \'\'\'\n'

_ACTIVATES = re.compile(r"(activate(_this)?|deactivate|pydoc)(\.\w+)?", re.IGNORECASE)


def _relocate_in(directory: Path) -> Callable[[str, bytes], bytes | None]:
    """Return what makes a script of an environment start with the Python beside it."""
    home = re.escape(os.fsencode(directory / "bin"))
    # #!/envs/1/bin/python3, and for long paths: #!/bin/sh, then '''exec' '/envs/1/bin/python3' "$0" "$@"
    plain = re.compile(rb"#!\s*" + home + rb"/(python[\w.]*)[^\n]*\n")
    long = re.compile(rb"#!/bin/sh\n'''exec' [\"']?" + home + rb"/(python[\w.]*)[^\n]*\n' '''\n")

    def relocate(name: str, content: bytes) -> bytes | None:
        if _ACTIVATES.fullmatch(Path(name).name):
            return None
        found = plain.match(content) or long.match(content)
        return _BESIDE % found[1] + content[found.end() :] if found else content

    return relocate


def open_pack(path: Path, place: Path, programs: Programs, platform: str, say: Say) -> Path:
    """Return the directory in which a pack lies unpacked below `place`, and unpack it where it does not yet.

    Of several processes that ask at once one unpacks, and the others wait for it. Raises `InputError` for
    what is no pack or is damaged, `NothingSuits` where it is for another machine.
    """
    facts = PackFacts.read(path)
    _refuse_other_machine(path, facts, platform)
    _make_own(place)
    directory = place / facts.id[:32]
    if _is_whole(directory):
        return directory
    with _alone(place / f"{facts.id[:32]}.lock", say) as is_alone:
        if _is_whole(directory):
            return directory
        free = shutil.disk_usage(place).free
        if free < facts.bytes:
            raise ToolFailed(
                f"{place} has {free / 2**30:.1f} GiB free, and `{path}` takes {facts.bytes / 2**30:.1f} GiB",
                hint="name a directory on another disk with --unpack-in DIR",
            )
        say(f"unpacking {path} into {directory}")
        draft = place / f"{facts.id[:32]}.new-{os.getpid()}"
        if is_alone:
            # What is left of one that was killed.
            for old in find_paths(place, f"{facts.id[:32]}.new-*"):
                shutil.rmtree(old, ignore_errors=True)
        try:
            unpack(path, draft, programs)
            if os.path.exists(directory):
                shutil.rmtree(directory)
            try:
                draft.rename(directory)
            except OSError:
                # Where locks do not reach, another process may have been first.
                if not _is_whole(directory):
                    raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return directory


@contextmanager
def mount_pack(
    path: Path, facts: PackFacts, place: Path, programs: Programs, platform: str
) -> Iterator[Path]:
    """Mount a pack below `place` for as long as the block lasts; raises as `open_pack` does."""
    _refuse_other_machine(path, facts, platform)
    _make_own(place)
    directory = Path(tempfile.mkdtemp(prefix="mounted-", dir=place))
    try:
        with mount(path, directory, programs):
            yield directory
    finally:
        directory.rmdir()


def _refuse_other_machine(path: Path, facts: PackFacts, platform: str) -> None:
    """Raise `NothingSuits` where a pack cannot start on this machine."""
    if facts.platform != platform:
        raise NothingSuits(f"`{path}` is for {facts.platform}, and this machine is {platform}")
    if not os.path.exists(Path(facts.interpreter)):
        raise NothingSuits(
            f"`{path}` needs {facts.interpreter}, which is not on this machine",
            hint=f"install Python {facts.python} there, or build the environment with a Python that all nodes"
            f" have: `torchenv create --python {facts.python}`",
        )


def make_entry(directory: Path, facts: PackFacts, environ: Mapping[str, str]) -> ProgramEntry:
    """Return what changes around a program that runs in an opened pack, as in the environment itself."""
    shows = any(name.endswith("_VISIBLE_DEVICES") for name in environ)
    return ProgramEntry(
        directory=directory,
        scripts=directory / "bin",
        set={"VIRTUAL_ENV": str(directory), **({} if shows else facts.set)},
        unset=tuple(sorted({"PYTHONHOME", "PYTHONPATH", *(() if shows else facts.unset)})),
    )


def _is_whole(directory: Path) -> bool:
    # What cleans up temporary directories takes single files first.
    return os.path.isfile(directory / "pyvenv.cfg") and os.path.exists(directory / "bin" / "python")


def _make_own(place: Path) -> None:
    """Make a directory that only this user can change.

    Raises `WorkspaceError` for someone else's, `InputError` for one that PATH cannot hold.
    """
    refuse_divided(place, "name another directory with --unpack-in DIR")
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.lstat()
    except OSError as error:
        hint = "name another directory with --unpack-in DIR"
        raise WorkspaceError(f"{place}: {error.strerror or error}", hint=hint) from None
    is_own = os.name == "nt" or (found.st_uid == os.getuid() and not found.st_mode & 0o022)
    if place.is_symlink() or not is_own:
        hint = "name a directory of your own with --unpack-in DIR"
        why = "is a link" if place.is_symlink() else "can be changed by other users"
        raise WorkspaceError(f"`{place}` {why}", hint=hint)


@contextmanager
def _alone(path: Path, say: Say) -> Iterator[bool]:
    """Wait until no other process holds a file; yields False where its file system knows no locks."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        has_said = False
        while (is_held := try_to_lock(handle)) is False:
            if not has_said:
                say("waiting for another process that unpacks it")
                has_said = True
            time.sleep(_LOOK)
        yield is_held is True
    finally:
        unlock(handle)
        os.close(handle)
