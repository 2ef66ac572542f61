"""The files of a project that is locked: its profile, torchenv.lock.toml and the locks of its targets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchenv.cli.gather import find_profile_directory
from torchenv.cli.session import Session, read_profile, read_text
from torchenv.cli.settings import PROJECT_FILE
from torchenv.errors import InputError
from torchenv.lockfile.lockset import (
    FILE,
    LockedTarget,
    LockSet,
    digest,
    lock_file,
    normalise,
    read_wish,
)
from torchenv.system.documents import Table

if TYPE_CHECKING:
    from torchenv.catalogue.releases import Catalogue
    from torchenv.lockfile.lock import Lock
    from torchenv.packages import CarriedPackages
    from torchenv.profile.model import Packages, Profile, Target


# A catalogue that the project commits; that of a workspace, or of one person, steers no lock.
OWN_CATALOGUE = "torchenv-catalogue.toml"


@dataclass(frozen=True)
class Project:
    """A project by the directory of its locks and by the profile that is locked.

    `path` is the profile's file, None for one that comes with torchenv; `source` names it for people, and the
    names of files in it begin from `profile_directory`. `named` is a catalogue that was named on the command
    line.
    """

    directory: Path
    path: Path | None
    source: str
    text: str
    profile_directory: Path
    named: Path | None = None

    @classmethod
    def of(cls, session: Session) -> Project:
        """Find the project that the command was started in; raises `InputError` where it has no profile.

        `--profile` or TORCHENV_PROFILE is locked in place of the project's own file.
        """
        settings = session.settings
        directory = settings.project or settings.cwd
        if settings.profile is None and settings.profile_path is None:
            raise InputError(f"no {PROJECT_FILE} in {directory}", hint="write one with `torchenv init`")
        text, source = read_profile(settings)
        return cls(
            directory=directory,
            path=settings.profile_path,
            source=PROJECT_FILE if settings.profile is None else source,
            text=text,
            profile_directory=find_profile_directory(session),
            named=settings.named_catalogue,
        )

    @cached_property
    def profile(self) -> Profile:
        """What it wants."""
        from torchenv.profile.model import Profile

        return Profile.from_toml(self.text, self.source)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The packaged catalogue, with the one laid over it that the project commits or that was named."""
        from torchenv.catalogue import resources

        return resources.catalogue(self.own_catalogue, is_named=self.named is not None)

    @property
    def own_catalogue(self) -> Path | None:
        """The catalogue that was named, else the one that the project commits, if it does."""
        committed = self.directory / OWN_CATALOGUE
        return self.named or (committed if os.path.isfile(committed) else None)

    def collect_carried(self, target: Target | None = None) -> CarriedPackages:
        """Return what is asked for beside torch, of one target with what it asks for by itself."""
        from torchenv.packages import together
        from torchenv.profile.model import Packages

        own = [self._of(self.profile.packages._replace(files=()))]
        files = self.profile.packages.files
        if target is not None:
            source = f"{self.source}: target {target.name}"
            asked = Packages(requirements=target.packages)
            own.append(self._of(asked, source))
            files = (*files, *target.listed)
        return together(*own, *(self._by_file[name] for name in files))

    @cached_property
    def _by_file(self) -> Mapping[str, CarriedPackages]:
        """What each file lists that the profile or a target names."""
        from torchenv.packages import of_file

        of_targets = (name for target in self.profile.targets for name in target.listed)
        names = dict.fromkeys((*self.profile.packages.files, *of_targets))
        return {
            name: of_file(name, self.profile_directory, read_text, self.catalogue, private=self._private)
            for name in names
        }

    @cached_property
    def wish(self) -> Mapping[str, Any]:
        """What decides what is locked: of the profile, and of the files that it names."""
        asked = {}
        table = Table.from_toml(self.text, self.source)
        if self._has_files(table):
            from torchenv.packages import list_lines
            from torchenv.profile.model import Packages

            asked = {name: list_lines(carried) for name, carried in self._by_file.items()}
            for folder in self.profile.packages.editable:
                carried = self._of(Packages(editable=(folder,)))
                asked[f"editable {folder}"] = list_lines(carried)
        return read_wish(table, asked)

    def _of(self, packages: Packages, source: str | None = None) -> CarriedPackages:
        from torchenv.packages import of_profile

        return of_profile(
            packages,
            source or self.source,
            self.profile_directory,
            read_text,
            self.catalogue,
            private=self._private,
        )

    @property
    def _private(self) -> tuple[str, ...]:
        return tuple(name for index in self.profile.index.private for name in index.packages)

    def _has_files(self, table: Table) -> bool:
        packages = table.table("packages")
        keys = {key for target in table.tables("target") for key in target}
        return "from" in packages or "editable" in packages or bool(keys & {"from", "extras", "groups"})

    @cached_property
    def lock_set(self) -> LockSet | None:
        """What ties its locks, if it was ever locked."""
        content = self.content(FILE)
        return None if content is None else LockSet.from_toml(content.decode("utf-8", "replace"), FILE)

    def require_lock_set(self) -> LockSet:
        """Return what ties its locks; raises `InputError` where there is nothing yet."""
        if self.lock_set is None:
            raise InputError(f"no {FILE} in {self.directory}", hint="write one with `torchenv lock`")
        return self.lock_set

    def content(self, name: str) -> bytes | None:
        """Return a file of the project as it is; None where it is not there."""
        try:
            return (self.directory / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{self.directory / name} cannot be read: {error.strerror or error}") from None

    def proven(self, target: LockedTarget) -> str:
        """Return the text of the lock of a target; raises `InputError` where it is not what was locked."""
        if target.lock is None:
            raise InputError(f"target `{target.name}` has no lock: {target.unsupported}")
        held = self.content(target.file)
        hint = "restore it from version control, or run `torchenv lock`, which keeps the pins that are there"
        if held is None:
            raise InputError(f"{target.file} is not in {self.directory}", hint=hint)
        if digest(held) != target.lock:
            raise InputError(f"{target.file} was changed since it was locked ({FILE} says so)", hint=hint)
        return normalise(held)

    def lock(self, target: LockedTarget) -> Lock:
        """Return the lock of a target, read."""
        from torchenv.lockfile.lock import Lock

        return Lock.parse(self.proven(target), target.file)

    def read_lock(self, name: str) -> Lock | None:
        """Return the lock of a target as it is now, whoever wrote it; None where there is none.

        Raises `InputError` with the remedy for one that cannot be read: its pins would be lost in silence.
        """
        from torchenv.lockfile.lock import Lock

        file = lock_file(name)
        held = self.content(file)
        if held is None:
            return None
        try:
            return Lock.parse(normalise(held), file)
        except InputError as error:
            hint = (
                f"restore one version of it, such as with `git checkout --ours -- {file}`, then run"
                " `torchenv lock`; or delete it to choose its packages anew"
            )
            raise InputError(error.message, hint=hint) from None
