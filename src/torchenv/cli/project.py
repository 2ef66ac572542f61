"""The files of a project that is locked: torchenv.toml, torchenv.lock.toml and the locks of its targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchenv.cli.context import PROJECT_FILE, Context, read_text
from torchenv.errors import InputError
from torchenv.lockfile.lockset import FILE, LockedTarget, LockSet, digest, read_wish
from torchenv.system.documents import Table

if TYPE_CHECKING:
    from torchenv.lockfile.lock import Lock
    from torchenv.profile.model import Profile


@dataclass(frozen=True)
class Project:
    """A project by its directory and the text of its profile; what lies elsewhere cannot be locked."""

    directory: Path
    text: str

    @classmethod
    def of(cls, context: Context) -> Project:
        """Find the project that the command was started in; raises `InputError` where it has no profile."""
        directory = context.project
        if directory is None or not (directory / PROJECT_FILE).is_file():
            where = directory or context.cwd
            raise InputError(f"there is no {PROJECT_FILE} in {where}", hint="`torchenv init` writes one")
        return cls(directory, read_text(directory / PROJECT_FILE, "the profile"))

    @cached_property
    def profile(self) -> Profile:
        """What it wants."""
        from torchenv.profile.model import Profile

        return Profile.from_toml(self.text, PROJECT_FILE)

    @cached_property
    def wish(self) -> Mapping[str, Any]:
        """What of that decides what is locked."""
        return read_wish(Table.from_toml(self.text, PROJECT_FILE), self.directory)

    @cached_property
    def lock_set(self) -> LockSet | None:
        """What ties its locks, if it was ever locked."""
        content = self.content(FILE)
        return None if content is None else LockSet.from_toml(content.decode("utf-8", "replace"), FILE)

    def require_lock_set(self) -> LockSet:
        """Return what ties its locks; raises `InputError` where there is nothing yet."""
        if self.lock_set is None:
            raise InputError(f"there is no {FILE} in {self.directory}", hint="`torchenv lock` writes one")
        return self.lock_set

    def content(self, name: str) -> bytes | None:
        """Return a file of the project as it is; None where it is not there."""
        try:
            return (self.directory / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{self.directory / name} cannot be read: {error.strerror or error}") from None

    def holds(self, target: LockedTarget) -> bool:
        """Whether the lock of a target is there as it was locked."""
        held = self.content(target.file)
        return held is not None and digest(held) == target.lock

    def proven(self, target: LockedTarget) -> bytes:
        """Return the lock of a target; raises `InputError` where it is not the one that was locked."""
        if target.lock is None:
            raise InputError(f"target {target.name} has no lock: {target.unsupported}")
        held = self.content(target.file)
        if held is None:
            hint = "take it from where the project's files are kept, or make it again with `torchenv lock`"
            raise InputError(f"{target.file} is not in {self.directory}", hint=hint)
        if digest(held) != target.lock:
            hint = (
                "take it back from where the project's files are kept, or make it again with `torchenv lock`"
            )
            raise InputError(f"{target.file} was changed since it was locked ({FILE} says so)", hint=hint)
        return held

    def lock(self, target: LockedTarget) -> Lock:
        """Return the lock of a target, read."""
        from torchenv.lockfile.lock import Lock

        return Lock.parse(self.proven(target).decode("utf-8", "replace"), target.file)
