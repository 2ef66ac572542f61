"""The files of a project that is locked: torchenv.toml, torchenv.lock.toml and the locks of its targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchenv.cli.context import PROJECT_FILE, Context, read_text
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
    from torchenv.catalogue import Catalogue
    from torchenv.lockfile.lock import Lock
    from torchenv.packages import CarriedPackages
    from torchenv.profile.model import Packages, Profile, Target


# A catalogue that the project commits; that of a workspace, or of one person, steers no lock.
OWN_CATALOGUE = "torchenv-catalogue.toml"


@dataclass(frozen=True)
class Project:
    """A project by its directory and the text of its profile; what lies elsewhere cannot be locked.

    `named` is a catalogue that was named on the command line.
    """

    directory: Path
    text: str
    named: Path | None = None

    @classmethod
    def of(cls, context: Context) -> Project:
        """Find the project that the command was started in; raises `InputError` where it has no profile."""
        directory = context.project
        if directory is None or not (directory / PROJECT_FILE).is_file():
            where = directory or context.cwd
            raise InputError(f"there is no {PROJECT_FILE} in {where}", hint="`torchenv init` writes one")
        named = getattr(context.arguments, "catalogue", None)
        text = read_text(directory / PROJECT_FILE, "the profile")
        return cls(directory, text, context.cwd / named if named else None)

    @cached_property
    def profile(self) -> Profile:
        """What it wants."""
        from torchenv.profile.model import Profile

        return Profile.from_toml(self.text, PROJECT_FILE)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The packaged catalogue, with the one laid over it that the project commits or that was named."""
        from torchenv.catalogue import resources

        return resources.catalogue(self.own_catalogue)

    @property
    def own_catalogue(self) -> Path | None:
        """The catalogue that was named, else the one that the project commits, if it does."""
        committed = self.directory / OWN_CATALOGUE
        return self.named or (committed if committed.is_file() else None)

    def collect_carried(self, target: Target | None = None) -> CarriedPackages:
        """Return what is asked for beside torch, of one target with what it asks for by itself."""
        from torchenv.packages import together
        from torchenv.profile.model import Packages

        own = [self._of(self.profile.packages._replace(files=()))]
        files = self.profile.packages.files
        if target is not None:
            source = f"{PROJECT_FILE}: target {target.name}"
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
            name: of_file(name, self.directory, _read, self.catalogue, private=self._private)
            for name in names
        }

    @cached_property
    def wish(self) -> Mapping[str, Any]:
        """What decides what is locked: of the profile, and of the files that it names."""
        asked = {}
        table = Table.from_toml(self.text, PROJECT_FILE)
        if self._has_files(table):
            from torchenv.packages import list_lines
            from torchenv.profile.model import Packages

            asked = {name: list_lines(carried) for name, carried in self._by_file.items()}
            for folder in self.profile.packages.editable:
                carried = self._of(Packages(editable=(folder,)))
                asked[f"editable {folder}"] = list_lines(carried)
        return read_wish(table, asked)

    def _of(self, packages: Packages, source: str = PROJECT_FILE) -> CarriedPackages:
        from torchenv.packages import of_profile

        return of_profile(packages, source, self.directory, _read, self.catalogue, private=self._private)

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


def _read(path: Path) -> str:
    return read_text(path, "the file")
