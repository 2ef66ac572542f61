"""Which environments exist and which one is in use: the one record torchenv trusts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from torchenv.environment.base_python import BasePython
from torchenv.errors import InputError, NothingSuits, WorkspaceError
from torchenv.system.documents import Table, nearest, toml, toml_key
from torchenv.system.names import check_environment_name, refuse_place
from torchenv.system.values import frozen
from torchenv.workspace.keys import read_record, to_keys
from torchenv.workspace.records import (
    Activation,
    ChoiceRecord,
    Environment,
    EnvironmentKind,
    Kept,
    More,
    Proof,
    Run,
    State,
    Switch,
    nothing_more,
)

SCHEMA = 1

HEADER = """\
torchenv's record of this workspace: which environments exist and which one is active.
torchenv replaces this file whole on every change; change it with `torchenv use`,
`torchenv rollback` and `torchenv remove` rather than by hand.\
"""

# The last line of a whole manifest that announces it: one that was cut between two tables is valid TOML.
END_MARK = "# end"


@frozen(kw_only=True)
class Manifest:
    """The whole record; every method that changes it gives a new one.

    `root` is where the workspace was when this was written, so that a moved workspace shows.
    """

    next_number: int = 1
    current: int | None = None
    root: str | None = None
    environments: tuple[Environment, ...] = ()
    switches: tuple[Switch, ...] = ()
    runs: tuple[Run, ...] = ()
    kept: tuple[Kept, ...] = ()
    more: More = field(default_factory=nothing_more, hash=False)

    # What is there.

    def number(self, number: int) -> Environment:
        """Return the environment of this number, which must be recorded."""
        return next(environment for environment in self.environments if environment.number == number)

    @property
    def active(self) -> Environment | None:
        """The environment in use, if there is one yet."""
        return None if self.current is None else self.number(self.current)

    def list_unfinished(self) -> tuple[Environment, ...]:
        """Return the environments that a run began and never finished."""
        return tuple(environment for environment in self.environments if environment.state is State.BUILDING)

    def find(self, text: str, *, removed: bool = False) -> Environment:
        """Return the environment that a person means by a number, a name or a torch version.

        Raises `InputError` where it is none or several, `NothingSuits` where it was removed, unless `removed`
        asks for such a one too, and `WorkspaceError` where another run is still at it.
        """
        found = self._match(text)
        if not found:
            close = nearest(text, [environment.name for environment in self.environments])
            hint = close or "list the environments with `torchenv list`"
            raise InputError(f"environment `{text}` not found", hint=hint)
        there = [found_item for found_item in found if found_item.on_disk] or found
        if len(there) > 1:
            several = ", ".join(str(item) for item in there)
            raise InputError(f"`{text}` matches environments {several}", hint="give its number")
        (one,) = there
        if one.state is State.BUILDING:
            hint = "wait until it is built; if its run was stopped, the next `torchenv create` clears it"
            raise WorkspaceError(f"environment {one} is not finished", hint=hint)
        if one.state is State.REMOVED and not removed:
            again = f"rebuild it with `torchenv restore {one.number}`" if one.lock else None
            raise NothingSuits(f"environment {one} was removed", hint=again)
        return one

    def require_active(self) -> Environment:
        """Return the active environment; raises `NothingSuits` where there is none, with the way to one."""
        if self.active is not None:
            return self.active
        usable = [environment for environment in self.environments if environment.live]
        hint = (
            f"switch to one with `torchenv use {usable[-1].number}`"
            if usable
            else "make one with `torchenv create --use`"
        )
        raise NothingSuits("no active environment", hint=hint)

    def _match(self, text: str) -> list[Environment]:
        if text.isdecimal():
            return [environment for environment in self.environments if str(environment.number) == text]
        named = [environment for environment in self.environments if environment.name == text]
        if named:
            # A name goes to a new environment only once the one before has been removed.
            return named[-1:]
        return [
            environment
            for environment in self.environments
            if environment.torch and _is_of_version(environment.torch, text)
        ]

    def rollback_target(self, live: Callable[[Environment], bool]) -> Environment | None:
        """Return the environment that was in use before this one and can still be used.

        One whose checks failed is taken where there is no other: it was worked in once, and the way back is
        never taken away. A switch back is a switch like any other, so a second rollback returns to where the
        first began.
        """
        recorded = {
            environment.number: environment
            for environment in self.environments
            if environment.number != self.current
        }
        before = (recorded.get(switch.from_) for switch in reversed(self.switches) if switch.from_)
        there = [item for item in before if item and item.on_disk]
        there.sort(key=lambda item: item.state is State.FAILED)
        return next((item for item in there if live(item)), None)

    # What changes it.

    def begin(
        self,
        name: str,
        *,
        within: Path,
        python: BasePython,
        at: datetime,
        torch: str | None = None,
        backend: str | None = None,
        index: str | None = None,
        reads: str | None = None,
        identity: str | None = None,
        host: str | None = None,
        choice: ChoiceRecord | None = None,
        activation: Activation | None = None,
    ) -> tuple[Manifest, Environment]:
        """Record that an environment is being built, in a directory of its own under `within`.

        Where the name is taken by one that is there, the new one gets its number at the end.
        Raises `InputError` for a name that cannot be the name of a directory, and for a place that holds
        no environment.
        """
        refuse_place(within)
        name = _free_name(self, check_environment_name(name))
        new = Environment(
            number=self.next_number,
            name=name,
            kind=EnvironmentKind.BUILT,
            state=State.BUILDING,
            # The number makes the path one that never was, so what could not be deleted is in nobody's way.
            path=str(within / f"{self.next_number}-{name}"),
            python=python,
            torch=torch,
            backend=backend,
            index=index,
            created=at,
            reads=reads,
            layout="venv",
            identity=identity,
            host=host,
            choice=choice,
            activation=activation,
        )
        return _with_new(self, new), new

    def adopt(
        self,
        name: str,
        *,
        path: Path,
        python: BasePython,
        at: datetime,
        torch: str | None = None,
        backend: str | None = None,
        index: str | None = None,
        fingerprint: str | None = None,
        reads: str | None = None,
        layout: str | None = None,
        identity: str | None = None,
    ) -> tuple[Manifest, Environment]:
        """Record an environment that someone else made; the first one recorded is the one in use.

        One that is recorded already keeps its number while its identity and torch are the same. Otherwise
        what was recorded is no longer there: it is marked removed, and its successor takes its place.
        """
        before = next(
            (
                environment
                for environment in self.environments
                if environment.path == str(path) and environment.on_disk
            ),
            None,
        )
        if before and before.kind is EnvironmentKind.BUILT:
            return self, before
        # Where nothing tells now, such as a file that may not be read, it is not taken for another.
        if before and identity in (None, before.identity) and before.torch == torch:
            return self._change(before, fingerprint=fingerprint)
        manifest = self.mark_removed(before.number) if before else self
        new = Environment(
            number=self.next_number,
            name=_free_name(manifest, check_environment_name(name)),
            kind=EnvironmentKind.ADOPTED,
            state=State.READY,
            path=str(path),
            python=python,
            torch=torch,
            backend=backend,
            index=index,
            created=at,
            fingerprint=fingerprint,
            reads=reads,
            layout=layout,
            identity=identity,
        )
        manifest = _with_new(manifest, new)
        if self.current is None:
            manifest = replace(manifest, current=new.number)
        elif before and self.current == before.number:
            manifest = manifest.use(new.number, why="adopt", at=at, said=(f"{path} was changed in place",))
        return manifest, new

    def commit(
        self,
        new: Environment,
        *,
        lock: str | None = None,
        fingerprint: str | None = None,
        proof: Proof | None = None,
        python: BasePython | None = None,
    ) -> tuple[Manifest, Environment]:
        """Record that a begun environment is finished: from here on it exists for others."""
        proofs = (*new.proofs, proof) if proof else new.proofs
        return self._change(
            new,
            state=State.READY,
            lock=lock,
            fingerprint=fingerprint,
            proofs=proofs,
            python=python or new.python,
        )

    def record_check(self, number: int, proof: Proof) -> Manifest:
        """Record a run of the smoke commands, which proves an environment or shows that it fails."""
        before = self.number(number)
        state = State.PROVEN if proof.passed else State.FAILED
        return self._change(before, state=state, proofs=(*before.proofs, proof))[0]

    def record_note(self, number: int, proof: Proof) -> Manifest:
        """Record a run of checks that decides nothing about whether an environment can be used."""
        before = self.number(number)
        return self._change(before, proofs=(*before.proofs, proof))[0]

    def drop_unfinished(self, number: int) -> Manifest:
        """Forget an environment that was never finished; its number stays used."""
        assert self.number(number).state is State.BUILDING
        return replace(
            self,
            environments=tuple(
                environment for environment in self.environments if environment.number != number
            ),
        )

    def forget(self, number: int) -> Manifest:
        """Take an environment off the record, and out of what is recorded of checkpoints; history stays."""
        assert number != self.current
        others = tuple(environment for environment in self.environments if environment.number != number)
        kept = (
            replace(boat, readable_by=tuple(reader for reader in boat.readable_by if reader != number))
            for boat in self.kept
        )
        return replace(
            self,
            environments=others,
            kept=tuple(kept),
            runs=tuple(run.without(number) for run in self.runs),
        )

    def mark_removed(self, number: int) -> Manifest:
        """Record that an environment is gone; its line and its lock stay, so that it can be built again."""
        return self._change(self.number(number), state=State.REMOVED)[0]

    def record_move(self, number: int, path: Path) -> Manifest:
        """Record where an environment was found again."""
        return self._change(self.number(number), path=str(path))[0]

    def begin_again(
        self, number: int, *, within: Path, python: BasePython, identity: str, at: datetime
    ) -> tuple[Manifest, Environment]:
        """Record that a removed or broken environment is being built again, under its own number.

        Its name gets the number at its end where it belongs to another one meanwhile.
        """
        before = self.number(number)
        taken = {
            other.name
            for other in self.environments
            if other.number != number and other.state is not State.REMOVED
        }
        return self._change(
            before,
            name=f"{before.name}-{number}" if before.name in taken else before.name,
            state=State.BUILDING,
            path=str(within / Path(before.path).name),
            python=python,
            identity=identity,
            created=at,
        )

    def readers(self, kept: Kept) -> tuple[Environment, ...]:
        """Return the environments that can read a lifeboat and can be used."""
        return tuple(
            environment
            for environment in self.environments
            if environment.number in kept.readable_by and environment.live
        )

    def find_last_use(self, number: int) -> datetime:
        """Return when an environment last came into use or went out of it, else when it was made."""
        moves = (switch.at for switch in self.switches if number in (switch.from_, switch.to))
        return max([self.number(number).created, *moves])

    def use(self, number: int, *, why: str, at: datetime, said: Iterable[str] = ()) -> Manifest:
        """Move the pointer, and tell the history; pointing where it points already changes nothing."""
        assert self.number(number).on_disk
        if number == self.current:
            return self
        switch = Switch(at=at, from_=self.current, to=number, why=why, said=tuple(said))
        return replace(self, current=number, switches=(*self.switches, switch))

    def keep(self, kept: Kept) -> Manifest:
        """Record a lifeboat, in place of what was recorded of the same path."""
        others = (item for item in self.kept if item.path != kept.path)
        return replace(self, kept=(*others, kept))

    def record_runs(self, runs: Iterable[Run]) -> Manifest:
        """Record what a scan of every root saw, in place of what the scan before it saw."""
        return replace(self, runs=tuple(runs))

    def _change(self, before: Environment, **changes: Any) -> tuple[Manifest, Environment]:
        after = replace(before, **changes)
        environments = tuple(
            after if environment.number == before.number else environment for environment in self.environments
        )
        return replace(self, environments=environments), after

    # To and from the file.

    @classmethod
    def from_toml(cls, text: str, source: str) -> Manifest:
        """Read the file; raises `InputError` for a damaged one, `WorkspaceError` for an unknown schema."""
        table = Table.from_toml(text, source)
        schema = table.get("schema", int)
        if schema != SCHEMA:
            hint = "use the torchenv that wrote it, or a newer one; nothing was changed"
            raise WorkspaceError(f"{source}: schema {schema} is not known to this torchenv", hint=hint)
        # Files from before the mark do not announce it.
        if table.get("end-mark", bool, False) and text.rstrip().rpartition("\n")[2].strip() != END_MARK:
            raise InputError(f"{source}: its end is missing: the last line is not `{END_MARK}`")
        # One that was cut after its first lines is no workspace without environments.
        table.get("next-number", int)
        manifest = read_record(table, cls, "schema", "end-mark")
        _check(manifest, table)
        return manifest

    def to_toml(self) -> str:
        """Write the file, with the keys in the order of the fields and a word on what it is."""
        lines = [*(f"# {line}" for line in HEADER.splitlines()), "", f"schema = {SCHEMA}"]
        lines += ["end-mark = true", *_lines(to_keys(self), at=""), "", END_MARK]
        return "\n".join(lines) + "\n"


def _check(manifest: Manifest, table: Table) -> None:
    numbers = [environment.number for environment in manifest.environments]
    for n, number in enumerate(numbers):
        if number in numbers[:n]:
            raise table.tables("environment")[n].wrong("number", f"{number} appears twice")
    if manifest.current is not None and manifest.current not in numbers:
        raise table.wrong("current", f"names environment {manifest.current}, which is not recorded")
    if manifest.next_number <= max(numbers, default=0):
        raise table.wrong(
            "next-number", f"{manifest.next_number} has been used, and a number is never used twice"
        )


def _with_new(manifest: Manifest, new: Environment) -> Manifest:
    environments = (*manifest.environments, new)
    return replace(manifest, environments=environments, next_number=new.number + 1)


def _free_name(manifest: Manifest, name: str) -> str:
    taken = {
        environment.name for environment in manifest.environments if environment.state is not State.REMOVED
    }
    return f"{name}-{manifest.next_number}" if name in taken else name


def _is_of_version(torch: str, wanted: str) -> bool:
    # Most commands name no version, and this import costs as much as reading the record.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return any(SpecifierSet(f"=={form}").contains(torch, prereleases=True) for form in _forms(wanted))
    except InvalidSpecifier:
        return False


def _forms(wanted: str) -> tuple[str, ...]:
    # `2.15` means each of its patches; with a local label (`2.15.0+cu132`) no wildcard is allowed.
    return (wanted,) if "+" in wanted else (wanted, f"{wanted}.*")


def _lines(table: Mapping[str, Any], *, at: str) -> Iterator[str]:
    below = {key: value for key, value in table.items() if _is_tables(value)}
    for key, value in table.items():
        if key not in below:
            yield f"{toml_key(key)} = {toml(value)}"
    for key, members in below.items():
        place = at + toml_key(key)
        for member in members:
            yield from ("", f"[[{place}]]")
            yield from _lines(member, at=f"{place}.")


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
