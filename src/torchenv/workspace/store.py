"""The workspace on disk, which only this module writes."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path

from torchenv.environment.fingerprint import sum_sizes
from torchenv.environment.identity import IDENTITY_FILE, identity
from torchenv.environment.startup import STARTUP_FILE, STARTUP_TEXT
from torchenv.errors import InputError, WorkspaceError
from torchenv.system.disk import NO_ROOM, Disk, explain_refusals, is_out_of_room, make_refusal
from torchenv.system.mutex import unlock
from torchenv.system.orphans import SharedHandles, end_orphans, end_own_programs
from torchenv.system.values import frozen
from torchenv.workspace.journal import Journal
from torchenv.workspace.lease import Lease
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, EnvironmentKind
from torchenv.workspace.trust import (
    IDENTITY_FILE_NAME,
    is_sealed,
    make_identity,
    read_identity,
    seal_identity,
)

# What a workspace holds, of which a stopped first run leaves a part, and what is left in any directory.
_OF_A_WORKSPACE = frozenset(
    {
        *(
            "building",
            "catalogue.toml",
            "checkpoints.json",
            "copies",
            "current",
            "envs",
            "fingerprints",
            IDENTITY_FILE_NAME,
            "index-answers.json",
        ),
        *("kept", "lease", "lock", "locks", "logs", "plans", "reserve", "trash", "upgrade.json", "written"),
    }
)
_OF_NOBODY = frozenset({".DS_Store", ".gitignore"})

# What was being written to the workspace itself when a run was killed.
_DRAFT = re.compile(
    r"(manifest\.toml(\.last-good)?|checkpoints\.json|upgrade\.json|\.gitignore|current"
    r"|\.torchenv-[0-9a-f]{16}|index-answers\.json\.\d+)\.new"
)

# The ending of what says of a discarded directory that torchenv put it there.
_MARK = ".mark"

# Tenths of a second that a run waits before it says so.
_TURNS_IN_SILENCE = 3

# Tenths of a second in which what a killed run left running ends.
_TURNS_FOR_ORPHANS = 50

# Seconds that a run waits for another that holds the workspace.
PATIENCE = 60.0

Say = Callable[[str], None]


@frozen
class InPlace:
    """An environment is where the manifest says."""

    path: Path


@frozen
class Moved:
    """An environment was found again at another place, where it came with its workspace or project."""

    path: Path
    was: Path


@frozen
class Replaced:
    """Another environment is where the manifest says that one was."""

    path: Path


@frozen
class Gone:
    """Nothing is where the manifest says."""

    path: Path


Whereabouts = InPlace | Moved | Replaced | Gone


class Store:
    """One workspace. Reading takes no lock and never waits; every writing method needs `locked`.

    `share` lets programs that are started hold an open lock; `refuse` raises `WorkspaceError` where the
    workspace may only be read; `remember` takes its identity after a change.
    Raises `WorkspaceError` where the disk refuses or is not as the manifest says.
    """

    def __init__(
        self,
        root: Path,
        *,
        say: Say = lambda _: None,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE,
        share: Callable[[int], AbstractContextManager[None]] | None = None,
        refuse: Callable[[], None] = lambda: None,
        remember: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self.root = root
        self.environments = root / "envs"
        self.current = root / "current"
        self.manifest_path = root / "manifest.toml"
        self.last_good_path = root / "manifest.toml.last-good"
        self._lock_file = root / "lock"
        self._trash = root / "trash"
        self._say = say
        self._disk = disk or Disk()
        self._disk.fence = root
        self._disk.reserve = root / "reserve"
        self._clock = clock
        self._patience = patience
        self._share = share or SharedHandles().share
        self._refuse = refuse
        self._remember = remember
        self._lease: Lease | None = None
        self._build: tuple[int, Lease] | None = None
        self._doomed: tuple[str, ...] = ()

    # Reading.

    def read(self) -> Manifest:
        """Return the manifest, which is empty where there is no workspace yet."""
        try:
            text = self.manifest_path.read_text(encoding="utf-8")
            return Manifest.from_toml(text, str(self.manifest_path))
        except FileNotFoundError:
            if not os.path.exists(self.last_good_path):
                return Manifest()
            raise self._make_damage_error(f"{self.manifest_path} is missing") from None
        except UnicodeDecodeError:
            raise self._make_damage_error(f"{self.manifest_path}: not a text") from None
        except InputError as error:
            raise self._make_damage_error(error.message) from None
        except OSError as error:
            raise make_refusal(self.manifest_path, error) from None

    def _make_damage_error(self, message: str) -> WorkspaceError:
        if os.path.exists(self.last_good_path):
            hint = f"look through its last good copy {self.last_good_path}, then copy it to its place"
        else:
            hint = f"look for the environments in {self.environments}; there is no good copy of the manifest"
        return WorkspaceError(message, hint=hint)

    def locate(self, environment: Environment) -> Whereabouts:
        """Find an environment on the disk, also after its project or workspace was renamed.

        A new environment that someone made at its place is not taken for it.
        """
        path = Path(environment.path)
        beside = _beside(path) if environment.identity is not None else ()
        for place in chain([path], self._other_places(path), beside):
            if os.path.isdir(place) and _is(environment, place):
                return InPlace(path) if place == path else Moved(place, was=path)
        return Replaced(path) if os.path.isdir(path) else Gone(path)

    def _other_places(self, path: Path) -> Iterator[Path]:
        was = self.read().root
        if was is None or Path(was) == self.root:
            return
        for before, now in ((Path(was), self.root), (Path(was).parent, self.root.parent)):
            if path.is_relative_to(before):
                yield now / path.relative_to(before)

    def read_built_size(self, environment: Environment) -> int | None:
        """Return the bytes of an environment as its fingerprint has them; None where none is kept whole."""
        try:
            text = self.fingerprint_path(environment.number).read_text("utf-8", errors="surrogateescape")
            return sum_sizes(text)
        except (OSError, ValueError):
            return None

    def measure(self, environment: Environment) -> int:
        """Return the bytes on the disk that removing an environment gives back; 0 where it is not there."""
        return self._disk.measure(self._directory(environment))

    def free_space(self, directory: Path | None = None) -> int:
        """Return the bytes that are free where environments are built, or in another directory."""
        return self._disk.free_space(directory or self.environments)

    def lock_path(self, number: int) -> Path:
        """Where the lock of an environment is kept, also after the environment was removed."""
        return self.root / "locks" / f"pylock.{number}.toml"

    def plan_path(self, number: int) -> Path:
        """Where the plan that an environment was built by is kept."""
        return self.root / "plans" / f"{number}.json"

    def fingerprint_path(self, number: int) -> Path:
        """Where the lines of an environment's fingerprint are kept."""
        return self.root / "fingerprints" / f"{number}.txt"

    @property
    def index_path(self) -> Path:
        """Where the index of checkpoints is, which a scan can make again."""
        return self.root / "checkpoints.json"

    @property
    def written_path(self) -> Path:
        """Where runs that torchenv started note each folder that they wrote a checkpoint to, one a line."""
        return self.root / "written"

    def read_written(self) -> tuple[str, ...]:
        """Return the folders that runs wrote checkpoints to; what is no whole path is left out."""
        try:
            lines = self.written_path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:
            return ()
        return tuple(dict.fromkeys(line for line in lines if Path(line).is_absolute()))

    def read_copies(self) -> dict[str, str]:
        """Return how torchenv made each copy of a checkpoint that is still there, by its address."""
        try:
            lines = self._copies_path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:
            return {}
        told = [line.split("\t") for line in lines]
        return {
            words[1]: words[0]
            for words in told
            if len(words) == 3 and os.path.lexists(words[1]) and os.path.lexists(words[2])
        }

    def note_copy(self, how: str, copy: str, source: str) -> None:
        """Note that torchenv made a copy of a checkpoint, where there is a workspace.

        A failure is of no weight: the copy is made, and is then taken for a save like others.
        """
        line = f"{how}\t{copy}\t{source}\n"
        if not self.manifest_path.exists() or line.count("\t") != 2 or line.count("\n") != 1:
            return
        with suppress(OSError, WorkspaceError):
            self._refuse()
            # One write: others may do this at the same time.
            with self._copies_path.open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(line)

    @property
    def _copies_path(self) -> Path:
        return self.root / "copies"

    def read_index_answers(self) -> str:
        """Return what the indexes answered of late, as a plan wrote it; empty where nothing is kept."""
        try:
            return (self.root / "index-answers.json").read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def write_index_answers(self, text: str) -> None:
        """Keep what the indexes answered, where there is a workspace; a failure is of no weight.

        It needs no hold of the workspace: every run may replace it, and none depends on it.
        """
        if not os.path.exists(self.manifest_path):
            return
        path = self.root / "index-answers.json"
        beside = path.with_name(f"{path.name}.{os.getpid()}.new")
        with suppress(OSError, WorkspaceError):
            self._refuse()
            self._disk.write(beside, text)
            self._disk.rename(beside, path)

    def read_journal(self) -> Journal | None:
        """Return how far an upgrade has come; None where there is none. Raises `WorkspaceError`."""
        try:
            text = self._journal_path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise WorkspaceError(f"`{self._journal_path}` cannot be read: {error}") from None
        return Journal.parse(text, str(self._journal_path))

    def read_trial(self) -> Journal | None:
        """Return the upgrade that has switched and awaits its `commit`; None where none can be read."""
        try:
            journal = self.read_journal()
        except WorkspaceError:
            return None
        return journal if journal is not None and journal.next is None else None

    def write_journal(self, journal: Journal) -> None:
        """Record how far an upgrade has come."""
        self._put(self._journal_path, journal.write())

    def delete_journal(self) -> None:
        """Forget an upgrade that has ended or was taken back."""
        self._disk.delete(self._journal_path)

    @property
    def _journal_path(self) -> Path:
        return self.root / "upgrade.json"

    def lifeboat_path(self, digest: str) -> Path:
        """Where the files of a lifeboat are listed with their hashes, by its digest."""
        return self.root / "kept" / f"{digest.rpartition(':')[2][:16]}.json"

    def log_directory(self, number: int) -> Path:
        """Where the logs of the checks in an environment are kept, also after it was removed."""
        return self.root / "logs" / str(number)

    # Writing.

    @contextmanager
    def hold(self, purpose: str, *, patience: float | None = None) -> Iterator[None]:
        """Hold the workspace against other writers, while the manifest is read and replaced.

        Waits for the one that holds it, and says for what; `purpose` is what others are told that they wait
        for, such as `torchenv create 2.15`. Raises `WorkspaceError` after `patience` seconds.
        """
        assert self._lease is None
        self._refuse_what_is_no_workspace()
        self._disk.make_directory(self.root)
        handle = self._disk.open_to_lock(self._lock_file)
        lease = self._make_lease(self._lock_file.with_name("lease"), purpose)
        try:
            self._wait_for(handle, lease, self._patience if patience is None else patience)
            try:
                with lease.keep_alive(), self._share(handle):
                    self._lease = lease
                    self._hide_from_git()
                    yield
            finally:
                self._lease = None
                unlock(handle)
        finally:
            os.close(handle)
        self._delete_doomed()
        if os.path.exists(self.manifest_path):
            self._disk.make_reserve()
            self._remember(self._read_or_make_identity())

    @contextmanager
    def hold_existing(self, purpose: str) -> Iterator[None]:
        """Hold the workspace for a change of what it records.

        Where it records nothing, nothing is made: it is not held, and `settle` and `clear` leave it alone.
        """
        if not os.path.lexists(self.manifest_path):
            yield
            return
        with self.hold(purpose):
            yield

    @contextmanager
    def build(self, number: int, key: str, purpose: str) -> Iterator[None]:
        """Hold the number of an environment while it is built, so that nobody takes it for left unfinished.

        The workspace itself stays free for others. `key` is what the same build is known by.
        """
        assert self._build is None
        path = self._build_path(number)
        self._disk.make_directory(path.parent)
        handle = self._disk.open_to_lock(path)
        lease = self._make_lease(path.with_suffix(".lease"), purpose)
        try:
            self._wait_for(handle, lease, self._patience)
            os.ftruncate(handle, 0)
            os.write(handle, f"{key}\n".encode())
            try:
                with lease.keep_alive(), self._share(handle):
                    self._build = (number, lease)
                    yield
            finally:
                self._build = None
                self._disk.delete(path)
                unlock(handle)
        finally:
            os.close(handle)

    def find_build(self, manifest: Manifest, key: str) -> int | None:
        """Return the number of an environment that another run is building by the same key."""
        for environment in manifest.list_unfinished():
            told = self._read_builder(environment.number)
            if told is not None and told[0] == key:
                return environment.number
        return None

    def wait_for_build(self, number: int) -> None:
        """Wait until the run that builds an environment has ended, and say for what."""
        if (told := self._read_builder(number)) is not None:
            self._say(f"waiting for {told[1]}, which builds the same environment")
        while self._read_builder(number) is not None:
            time.sleep(0.2)

    def _read_builder(self, number: int) -> tuple[str, str] | None:
        """Return the key and the run that builds an environment; None where none does any more."""
        path = self._build_path(number)
        if self._build is not None and self._build[0] == number:
            return "", "this run"
        try:
            handle = self._disk.open_to_lock(path, make=False)
        except WorkspaceError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        try:
            turns = _TURNS_FOR_ORPHANS if end_orphans(path.resolve()) else 0
            locked = self._disk.try_to_lock(handle)
            while locked is False and turns > 0:
                # What was just killed takes a moment to end, and may have started another before it did.
                time.sleep(0.1)
                end_orphans(path.resolve())
                turns -= 1
                locked = self._disk.try_to_lock(handle)
            lease = self._make_lease(path.with_suffix(".lease"), "")
            if locked is not False and lease.is_gone(alone=locked is True):
                return None
            key = os.pread(handle, 4000, 0).decode(errors="replace").partition("\n")[0]
            return key, lease.holder
        finally:
            # What was locked only to look is free again.
            os.close(handle)

    def _build_path(self, number: int) -> Path:
        return self.root / "building" / f"{number}.lock"

    def _hide_from_git(self) -> None:
        """Keep a new workspace out of the project's commits; what a person changed there stays."""
        path = self.root / ".gitignore"
        if not os.path.exists(self.manifest_path) and not os.path.lexists(path):
            self._put(path, "*\n")

    def _read_or_make_identity(self) -> str | None:
        if not is_sealed(self.root):
            # A disk without room, or with a link in its place, leaves it without one.
            with suppress(WorkspaceError, OSError):
                text = seal_identity(read_identity(self.root) or make_identity(), self.root)
                self._disk.put(self.root / IDENTITY_FILE_NAME, text)
        return read_identity(self.root)

    def _refuse_what_is_no_workspace(self) -> None:
        self._refuse()
        # It may hold a `trash` or a `lock` of its own, which would be emptied and overwritten.
        if (
            os.path.exists(self.manifest_path)
            or os.path.exists(self.last_good_path)
            or not os.path.isdir(self.root)
        ):
            return
        with explain_refusals(self.root):
            others = sorted(
                path.name
                for path in self.root.iterdir()
                if path.name.removesuffix(".new") not in {"manifest.toml", *_OF_A_WORKSPACE, *_OF_NOBODY}
            )
        if others:
            hint = f"name a directory of its own, such as --root {shlex.quote(str(self.root / 'torchenv'))}"
            raise InputError(f"{self.root} is not a workspace: it holds {others[0]}", hint=hint)

    def _make_lease(self, path: Path, purpose: str) -> Lease:
        return Lease(path, purpose, node=self._disk.node(), host=self._disk.host())

    def _wait_for(self, handle: int, lease: Lease, patience: float) -> None:
        locked: bool | None = False
        until = self._clock() + patience
        for turn in count():
            with explain_refusals(self._lock_file):
                locked = locked or self._disk.try_to_lock(handle)
                # Where files cannot be locked, the lease alone decides.
                if locked is not False and self._try_to_take(lease, alone=locked is True):
                    return
            if turn % 10 == 0:
                end_orphans(self._lock_file.resolve())
            if self._clock() >= until:
                raise WorkspaceError(
                    f"`{self.root}` has been held for {patience:g} s by {lease.holder}",
                    hint="end that process, or wait for it, then run this again",
                )
            if turn == _TURNS_IN_SILENCE:
                self._say(f"waiting for {lease.holder}, which is changing `{self.root}`")
            time.sleep(0.1)

    def _try_to_take(self, lease: Lease, *, alone: bool) -> bool:
        try:
            return self._disk.with_room(partial(lease.try_take, alone=alone))
        except OSError as error:
            if error.errno not in NO_ROOM or not alone:
                raise
            # A full disk is no reason to refuse the way back to who holds this machine's own lock.
            lease.take_unwritten()
            return True

    def write(self, manifest: Manifest) -> None:
        """Put this manifest in the place of the other at once, then a copy beside it."""
        assert self._lease is not None, "only the run that holds the workspace may replace its manifest"
        text = replace(manifest, root=str(self.root)).to_toml()
        self._refuse_what_is_no_text(text)
        try:
            self._put(self.manifest_path, text)
            self._prove_written(text)
            # Two files, so that an editor or a disk that spoils one leaves the other.
            self._put(self.last_good_path, text)
        except WorkspaceError as error:
            if not is_out_of_room(error) or not os.path.exists(self.manifest_path):
                raise
            # The last resort on a full disk: the copy beside it stays as it was.
            self._disk.overwrite(self.manifest_path, text)

    def _prove_written(self, text: str) -> None:
        """Read back what was written, before its last good copy is given up for it."""
        with explain_refusals(self.manifest_path):
            if self.manifest_path.read_bytes() != text.encode():
                raise WorkspaceError(
                    f"`{self.manifest_path}` is not what was written to it",
                    hint=f"check the disk; the record before this change is `{self.last_good_path}`",
                )

    def _refuse_what_is_no_text(self, text: str) -> None:
        # A file system takes names of any bytes, and TOML only text: who reads it would find it damaged.
        try:
            text.encode()
        except UnicodeEncodeError as error:
            line = text.splitlines()[text.count("\n", 0, error.start)]
            hint = "rename the directory to valid UTF-8, or choose another place with --root DIR"
            raise InputError(
                f"{self.manifest_path} cannot record what is not UTF-8 text: {line}", hint=hint
            ) from None

    def write_lock(self, number: int, text: str) -> Path:
        """Keep the lock of an environment."""
        return self._keep(self.lock_path(number), text)

    def write_pending_lock(self, number: int, text: str) -> Path:
        """Keep the lock that an environment is being changed to, beside the one that it has."""
        return self._keep(self._pending_lock_path(number), text)

    def delete_pending_lock(self, number: int) -> None:
        """Delete the lock of a change that has ended."""
        self._disk.delete(self._pending_lock_path(number))

    def _pending_lock_path(self, number: int) -> Path:
        return self.root / "locks" / f"pylock.{number}-next.toml"

    def write_plan(self, number: int, text: str) -> Path:
        """Keep the plan of an environment."""
        return self._keep(self.plan_path(number), text)

    def write_fingerprint(self, number: int, text: str) -> Path:
        """Keep the lines of a fingerprint, so that a difference can be named later."""
        return self._keep(self.fingerprint_path(number), text)

    def write_index(self, text: str) -> Path:
        """Keep the index of checkpoints."""
        return self._keep(self.index_path, text)

    def write_kept(self, digest: str, text: str) -> Path:
        """Keep the list of the files of a lifeboat."""
        return self._keep(self.lifeboat_path(digest), text)

    def write_log(self, number: int, name: str, text: str) -> Path:
        """Keep what a check in an environment printed."""
        return self._keep(self.log_directory(number) / name, text)

    def read_log(self, number: int, name: str) -> str | None:
        """Return what was kept of a check; None where there is nothing."""
        path = self.log_directory(number) / name
        return path.read_text(encoding="utf-8") if os.path.isfile(path) else None

    def write_constraints(self, environment: Environment, text: str) -> Path:
        """Leave in a new environment what keeps a later install by hand from replacing its packages."""
        path = constraints_path(self._directory(environment))
        self._put(path, text)
        return path

    def write_startup(self, environment: Environment, site_packages: Path) -> None:
        """Leave in a new environment the start-up file that a run wakes by a variable."""
        assert site_packages.is_relative_to(self._directory(environment))
        self._put(site_packages / STARTUP_FILE, STARTUP_TEXT)

    def mark(self, environment: Environment) -> None:
        """Leave in a new environment what it will be known by."""
        assert environment.identity is not None
        self._put(self._directory(environment) / IDENTITY_FILE, f"{environment.identity}\n")

    def settle(self) -> Manifest:
        """Return the manifest for a change, after what has moved is recorded where it is now.

        What a stopped run renamed away and did not record as removed is put back.
        """
        if self._lease is None:
            return Manifest()
        manifest = before = self.read()
        self._put_back_wrongly_discarded(manifest)
        for environment in manifest.environments:
            if environment.on_disk and isinstance(now := self.locate(environment), Moved):
                manifest = manifest.record_move(environment.number, now.path)
        if manifest is not before:
            self.write(manifest)
        return manifest

    def clear_unfinished(self) -> Manifest:
        """Bring the disk to what the manifest says after a run that was stopped, and give the manifest."""
        return self.clear(self.settle())

    def clear(self, manifest: Manifest) -> Manifest:
        """Clear what the manifest says was begun and never finished, and give it without that."""
        if self._lease is None:
            # What lies in a workspace that nobody holds may be what another run is writing.
            return manifest
        unfinished = tuple(
            environment
            for environment in manifest.list_unfinished()
            # What another run is building now is not left; what this run gives up is.
            if self._is_own(environment.number) or self._read_builder(environment.number) is None
        )
        for environment in unfinished:
            if self._is_own(environment.number):
                self._end_own_programs(environment.number)
            else:
                self._say(f"clearing environment {environment}, which was left unfinished")
            try:
                self.discard(environment)
            except WorkspaceError as error:
                # Windows renames no directory in which a program has a file open.
                self._say(f"{environment.path} could not be cleared yet: {error}")
                continue
            if environment.is_rebuilding:
                # It can be rebuilt another time: what is kept of it stays.
                manifest = manifest.mark_removed(environment.number)
            else:
                manifest = manifest.drop_unfinished(environment.number)
                self.delete_records(environment.number)
            if not self._is_own(environment.number):
                self._disk.delete(self._build_path(environment.number).with_suffix(".lease"))
                self._disk.delete(self._build_path(environment.number))
        if unfinished:
            self.write(manifest)
        self._clear_builds()
        self._clear_drafts(manifest)
        self.empty_trash()
        self.remake_current(manifest)
        return manifest

    def _end_own_programs(self, number: int) -> None:
        """End what this run has started and does not watch over: it would make again what is cleared."""
        path = self._build_path(number).resolve()
        for _ in range(_TURNS_FOR_ORPHANS):
            if not end_own_programs(path):
                return
            # What was just killed may have started another before it ended.
            time.sleep(0.1)

    def _clear_builds(self) -> None:
        """Delete locks and leases of builds that have ended; who begins one holds the workspace, as we do."""
        with suppress(WorkspaceError):
            building = self.root / "building"
            for name in self._disk.list(building):
                number, _, kind = name.partition(".")
                if kind == "lock" and number.isdecimal() and self._read_builder(int(number)) is None:
                    self._disk.delete(building / name)
            names = set(self._disk.list(building))
            for name in names:
                if name.endswith(".lease") and f"{name.removesuffix('.lease')}.lock" not in names:
                    self._disk.delete(building / name)

    def _clear_drafts(self, manifest: Manifest) -> None:
        """Delete what a killed run had not yet given its name; what another run builds now is left to it."""
        building = {str(environment.number) for environment in manifest.list_unfinished()}
        for folder in self._list_folders_of_records():
            # A folder that is none stops nobody: whoever writes to it says so.
            with suppress(WorkspaceError):
                for name in self._disk.list(folder):
                    # pylock.12.toml.new, 12.json.new, logs/12/smoke.txt.new
                    numbers = {*re.findall(r"\d+", name), folder.name}
                    is_draft = _DRAFT.fullmatch(name) if folder == self.root else name.endswith(".new")
                    if is_draft and building.isdisjoint(numbers):
                        self._disk.delete(folder / name)

    def _list_folders_of_records(self) -> Iterator[Path]:
        yield self.root
        yield from (self.root / name for name in ("kept", "locks", "plans", "fingerprints"))
        with suppress(WorkspaceError):
            yield from [self.root / "logs" / name for name in self._disk.list(self.root / "logs")]

    def make_place(self, environment: Environment) -> None:
        """Clear the directory of an environment that is rebuilt; what torchenv did not build there stays.

        Raises `WorkspaceError` where the place is taken.
        """
        directory = self._directory(environment)
        discarded = self._trash / directory.name
        if self._disk.delete(discarded):
            self._disk.delete(self._mark_of(directory.name))
        if os.path.lexists(discarded) or os.path.lexists(directory):
            taken = discarded if os.path.lexists(discarded) else directory
            raise WorkspaceError(
                f"`{taken}` is in the way", hint="move it elsewhere, or delete it, then run this again"
            )

    def delete_records(self, number: int) -> None:
        """Delete the lock, the plan, the fingerprint and the logs that were kept of an environment."""
        for kept in (self.lock_path, self.plan_path, self.fingerprint_path, self.log_directory):
            self._disk.delete(kept(number))

    def discard(self, environment: Environment) -> None:
        """Rename the directory of an environment away, to where `empty_trash` deletes it.

        What someone else has put in the place of a finished environment is left alone.
        """
        directory = self._directory(environment)
        if os.path.exists(directory):
            if environment.on_disk and not _is(environment, directory):
                hint = "move it to where it belongs, or remove the environment from the manifest"
                raise WorkspaceError(f"{directory} is not what torchenv built there: left alone", hint=hint)
            try:
                self._disk.make_directory(self._trash)
                # Only what is marked is deleted: whatever else lies there is somebody's.
                self._disk.write(
                    self._mark_of(directory.name), f"{environment.identity or environment.name}\n"
                )
                self._disk.rename(directory, self._trash / directory.name)
            except WorkspaceError as error:
                if not is_out_of_room(error):
                    raise
                # The last resort on a full disk, which has no room for a mark.
                self._disk.delete(directory)

    def empty_trash(self) -> None:
        """Have what was discarded deleted as soon as the workspace is no longer held.

        What another program holds open is left for the next time.
        """
        names = self._disk.list(self._trash)
        doomed = []
        for name in names:
            if name.endswith(_MARK):
                if name.removesuffix(_MARK) not in names:
                    self._disk.delete(self._trash / name)
            elif f"{name}{_MARK}" not in names:
                self._say(f"`{self._trash / name}` was not put there by torchenv; left alone")
            else:
                doomed.append(name)
        self._doomed = tuple(doomed)

    def _delete_doomed(self) -> None:
        names, self._doomed = self._doomed, ()
        for name in names:
            # Gigabytes take a while, for which nobody waits; a name is never used again.
            if self._disk.delete(self._trash / name):
                self._disk.delete(self._mark_of(name))
            else:
                self._say(f"`{self._trash / name}` could not be deleted whole; the next run tries again")

    def _mark_of(self, name: str) -> Path:
        return self._trash / f"{name}{_MARK}"

    def prepare(self) -> None:
        """Make the directory that environments are built in."""
        self._disk.make_directory(self.environments)

    def make_lifeboat_directory(self, digest: str) -> Path:
        """Return where the copy of a lifeboat is kept, in a directory that is made for all of them."""
        self._refuse_what_is_no_workspace()
        self._disk.make_directory(self.root / "kept")
        return self.lifeboat_path(digest).with_suffix("")

    def delete_lifeboat_copy(self, digest: str) -> None:
        """Delete the copy of a lifeboat that no longer has the bytes of its original."""
        self._refuse_what_is_no_workspace()
        self._disk.delete(self.lifeboat_path(digest).with_suffix(""))

    def remake_current(self, manifest: Manifest) -> None:
        """Make `current` lead to the environment in use: a link, or a small file where none is allowed."""
        environment = manifest.active
        if environment is None or _leads_to(self.current) == environment.path:
            return
        beside = self.current.with_name("current.new")
        try:
            self._disk.delete(beside)
            if not self._disk.link(beside, Path(environment.path)):
                self._disk.write(beside, f"{environment.path}\n")
            if os.name == "nt" and self.current.is_symlink():
                # Windows puts nothing in the place of a link to a directory.
                self._disk.delete(self.current)
            self._disk.rename(beside, self.current)
        except WorkspaceError as error:
            if is_out_of_room(error):
                # What it gives free is what the new one needs.
                self._disk.delete(self.current)
                if self._disk.link(self.current, Path(environment.path)):
                    return
            # The manifest says what is in use. This is for editors and people.
            self._say(f"`current` could not be remade: {error}")

    def _is_own(self, number: int) -> bool:
        return self._build is not None and self._build[0] == number

    def _put(self, path: Path, text: str) -> None:
        lease = self._lease or (self._build[1] if self._build else None)
        assert lease is not None, "only the run that holds the workspace may write to it"
        lease.refuse_lost()
        beside = path.with_name(f"{path.name}.new")
        try:
            self._disk.write(beside, text)
            self._disk.rename(beside, path)
        except WorkspaceError:
            self._disk.delete(beside)
            raise

    def _keep(self, path: Path, text: str) -> Path:
        self._disk.make_directory(path.parent)
        self._put(path, text)
        return path

    def _directory(self, environment: Environment) -> Path:
        # A manifest that someone edited must not lead to deleting what lies elsewhere.
        name = Path(environment.path).name
        if environment.kind is not EnvironmentKind.BUILT or not name.startswith(f"{environment.number}-"):
            raise WorkspaceError(f"{environment.path} is not one of torchenv's own environments: left alone")
        return self.environments / name

    def _put_back_wrongly_discarded(self, manifest: Manifest) -> None:
        # A run may stop between renaming an environment away and recording that it was removed.
        built = {
            Path(environment.path).name: environment
            for environment in manifest.environments
            if environment.kind is EnvironmentKind.BUILT
        }
        for directory in self._list_discarded():
            environment = built.get(directory.name)
            if environment and environment.on_disk and not os.path.exists(self.environments / directory.name):
                self._disk.rename(directory, self.environments / directory.name)

    def _list_discarded(self) -> tuple[Path, ...]:
        names = self._disk.list(self._trash)
        return tuple(self._trash / name for name in names if f"{name}{_MARK}" in names)


def _beside(path: Path) -> Iterator[Path]:
    """Yield where it would be if its project had another name now, and the workspace lay elsewhere."""
    with suppress(OSError):
        yield from (place / path.name for place in path.parent.parent.iterdir())


def constraints_path(directory: Path) -> Path:
    """Where the constraints of an environment that torchenv built lie."""
    return directory / "constraints.txt"


def _is(environment: Environment, directory: Path) -> bool:
    # What was recorded without an identity is known by its place alone.
    return environment.identity is None or identity(directory) == environment.identity


def _leads_to(current: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return str(current.readlink()) if current.is_symlink() else current.read_text("utf-8").rstrip("\n")
    return None
