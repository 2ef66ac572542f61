"""What a release takes away or changes: the facts that the rules of the audit compare with.

What a release is published for (Pythons, backends, chips, companions) comes from the catalogue; what it
changes in code comes from `breakages.toml`, over which a user's catalogue lays its `[audit]` table. A
release that brings no fact of a kind leaves that part empty, and the rules that need it ask nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchenv.catalogue.builds import Rocm
from torchenv.errors import InputError
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torchenv.catalogue.releases import Catalogue, Release
    from torchenv.system.documents import Table


@frozen
class BrokenCompanion:
    """Releases of a package that do not import beside this torch, why, and the one that does."""

    name: str
    refuses: SpecifierSet
    why: str
    instead: str


@frozen
class Trainer:
    """A call of a trainer that writes `torch.distributed.checkpoint` under the hood.

    Without a parameter it always does; else only with one of the values, or by default.
    """

    call: str
    parameter: str | None
    values: tuple[str, ...]
    default: bool


@frozen
class TrainerSetting:
    """A setting by which a trainer writes distributed checkpoints.

    `key` is how configuration files write it, `--key` how a command line does, and `variable` how the
    environment does; `method` is the call that takes it in code.
    """

    tool: str
    key: str
    values: tuple[str, ...]
    variable: str | None
    method: str | None


@frozen
class Nccl:
    """The implementation that was replaced: its name, its switch, its settings, its class and members."""

    legacy: str
    switch: str
    settings: str
    legacy_class: str
    new_classes: frozenset[str]
    legacy_members: frozenset[str]


@frozen
class Nested:
    """What makes nested tensors, and the names that reading old jagged ones needs."""

    makers: tuple[str, ...]
    safe_globals: tuple[str, ...]
    strided_global: str


@frozen
class CheckpointApis:
    """What writes distributed checkpoints, by its name in `torch.distributed.checkpoint`."""

    savers: tuple[str, ...]
    writers: tuple[str, ...]
    harmless_writers: tuple[str, ...]


@frozen
class Unbundled:
    """A library that the wheels no longer bring: `curand`, the package that has it, and how people say it."""

    library: str
    package: str
    shown: str
    host_calls: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Breakages:
    """The facts for one release.

    `before` is the last release without them. `left` maps a backend to the last torch it had, `removed_gfx`
    an override to a chip, `removed_names` and `removed_members` a name to the advice for it. `on_the_way`
    says of a release that is older than the one audited for: only what it changes in code counts.
    """

    version: Version
    before: Version
    family: frozenset[str]
    pythons: tuple[str, ...]
    dropped_pythons: tuple[str, ...]
    backends: frozenset[str]
    default_backend: str
    left: Mapping[str, str]
    mps_macos: int
    removed_gfx: Mapping[str, str]
    removed_gfx_backend: str | None
    companions: tuple[BrokenCompanion, ...] = ()
    nccl: Nccl | None = None
    nested: Nested | None = None
    checkpoint: CheckpointApis | None = None
    trainers: tuple[Trainer, ...] = ()
    trainer_settings: tuple[TrainerSetting, ...] = ()
    unbundled: tuple[Unbundled, ...] = ()
    one_device: bool = False
    loads_once: bool = False
    removed_names: Mapping[str, str] = field(default_factory=dict)
    removed_members: Mapping[str, str] = field(default_factory=dict)
    removed_headers: tuple[str, ...] = ()
    spellings: Mapping[str, str] = field(default_factory=dict)
    on_the_way: bool = False

    def is_published(self, backend: str) -> bool:
        """Return whether the release has wheels for a backend."""
        return backend in self.backends

    def last_on(self, backend: str) -> str:
        """Describe which torch a backend that left still has."""
        last = self.left.get(backend)
        return f"its last torch is {last}" if last else "it has older releases only"

    def is_pinned_by(self, specifier: SpecifierSet) -> bool:
        """Return whether a requirement on torch lets only this release line or later ones in."""
        return any(
            clause.operator in {"==", "===", "~=", ">="}
            and Version(clause.version.removesuffix(".*")).release[:2] >= self.version.release[:2]
            for clause in specifier
        )

    def is_admitted_by(self, specifier: SpecifierSet) -> bool:
        """Return whether a requirement on torch lets this release, or a later patch of it, in."""
        bare = SpecifierSet(",".join(str(clause).partition("+")[0] for clause in specifier))
        return self.is_pinned_by(specifier) or bare.contains(self.version, prereleases=True)


def read_breakages(
    table: Table, catalogue: Catalogue, wanted: str | None = None, since: str | None = None
) -> tuple[Breakages, ...]:
    """Return the facts of a release, then of those on the way to it, newest first.

    `wanted` is a version or a line, by default the newest release that the catalogue or the document
    knows; `since` is the release that the code runs on today: what came after it is on the way. Raises
    `InputError` where the document is wrong, or nobody knows the release.
    """
    table.only({"schema", "spellings", "left", "release"})
    table.schema(1, remedy="upgrade torchenv")
    return _Reader(table, catalogue).read(wanted, since)


class _Reader:
    """The document of changes beside the catalogue of releases."""

    def __init__(self, table: Table, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._spellings = _strings(table.table("spellings"))
        self._left_before = _strings(table.table("left"))
        self._changes = {Version(entry.get("version", str)): entry for entry in table.tables("release")}
        self._source = table.source

    def read(self, wanted: str | None, since: str | None) -> tuple[Breakages, ...]:
        release = self._release(wanted)
        floor = Version(since).release[:2] if since else None
        target = self._facts(release, self._entry(release))
        older = [
            self._facts(item, entry)
            for item in self._catalogue.releases
            if _line(item.version) < _line(release.version)
            and (floor is None or _line(item.version) > floor)
            and (entry := self._changes.get(item.version)) is not None
        ]
        return (target, *(replace(facts, on_the_way=True) for facts in older))

    def _release(self, wanted: str | None) -> Release:
        if wanted is None:
            return self._catalogue.releases[0]
        line = Version(wanted).release[:2]
        found = [release for release in self._catalogue.releases if _line(release.version) == line]
        if not found or line < min(map(_line, self._changes)):
            known = [str(release.version) for release in self._catalogue.releases if self._is_known(release)]
            raise InputError(
                f"{self._source}: what torch {wanted} breaks is not described",
                hint=f"audit for {' or '.join(known)}",
            )
        return found[0]

    def _is_known(self, release: Release) -> bool:
        return _line(release.version) >= min(map(_line, self._changes))

    def _entry(self, release: Release) -> Table | None:
        return next(
            (entry for known, entry in self._changes.items() if _line(known) == _line(release.version)), None
        )

    def _facts(self, release: Release, entry: Table | None) -> Breakages:
        older = [
            item for item in self._catalogue.releases if _line(item.version) < _line(release.version)
        ] or [release]
        removed_gfx = _find_removed_gfx(release, older[0])
        published = Breakages(
            version=Version(str(release.version)),
            before=Version(str(older[0].version)),
            family=self._catalogue.family,
            pythons=_ordinary(release),
            dropped_pythons=_find_dropped(release, older),
            backends=frozenset(backend.tag for backend in release.backends),
            default_backend=release.package_index.get("linux-x86_64") or release.defaults["nvidia"],
            left={**self._left_before, **_find_left(release, older)},
            mps_macos=release.macos.mps.major,
            removed_gfx=removed_gfx,
            removed_gfx_backend=_backend_with(older[0], removed_gfx.values()),
            spellings=self._spellings,
        )
        return published if entry is None else _add_changes(published, entry)


def _line(version: Version) -> tuple[int, ...]:
    return version.release[:2]


def _ordinary(release: Release) -> tuple[str, ...]:
    return tuple(python for python in release.pythons if not python.endswith("t"))


def _find_dropped(release: Release, older: list[Release]) -> tuple[str, ...]:
    # Whoever names an interpreter that has not been supported for years means the same as with the last one.
    ancient = {f"3.{minor}" for minor in range(7, int(release.pythons[0].partition(".")[2]))}
    dropped = ancient | {python for release in older for python in _ordinary(release)} - set(release.pythons)
    return tuple(sorted(dropped, key=Version))


def _find_left(release: Release, older: list[Release]) -> dict[str, str]:
    """Return the last release of each backend that this one is not published for."""
    last: dict[str, str] = {}
    for item in reversed(older):
        last.update({backend.tag: str(item.version) for backend in item.backends})
    return {tag: version for tag, version in last.items() if release.backend(tag) is None}


def _gfx(release: Release) -> dict[str, frozenset[str]]:
    return {backend.tag: backend.needs.gfx for backend in release.backends if isinstance(backend.needs, Rocm)}


def _find_removed_gfx(release: Release, before: Release) -> dict[str, str]:
    """Return the chips that no build has code for any more, by the value of HSA_OVERRIDE_GFX_VERSION."""
    now = frozenset[str]().union(*_gfx(release).values())
    then = frozenset[str]().union(*_gfx(before).values())
    return {_override(gfx): gfx for gfx in sorted(then - now)}


def _override(gfx: str) -> str:
    # gfx906 is 9.0.6 and gfx90a is 9.0.10: minor and stepping are one hexadecimal digit each.
    match = re.fullmatch(r"gfx(\d+)([0-9a-f])([0-9a-f])", gfx)
    return f"{match[1]}.{int(match[2], 16)}.{int(match[3], 16)}" if match else gfx


def _backend_with(release: Release, chips: Iterable[str]) -> str | None:
    return next((tag for tag, gfx in _gfx(release).items() if gfx.issuperset(chips)), None)


def _add_changes(published: Breakages, table: Table) -> Breakages:
    table.only(_KEYS)
    return replace(
        published,
        before=Version(table.maybe("before", str) or str(published.before)),
        companions=tuple(map(_companion, table.tables("companion"))),
        nccl=_nccl(table.table("nccl")) if "nccl" in table else None,
        nested=_parse_nested(table.table("nested")) if "nested" in table else None,
        checkpoint=_checkpoint(table.table("checkpoint")) if "checkpoint" in table else None,
        trainers=tuple(map(_trainer, table.tables("trainer"))),
        trainer_settings=tuple(map(_trainer_setting, table.tables("trainer-setting"))),
        unbundled=tuple(map(_parse_unbundled, table.tables("unbundled"))),
        one_device=table.get("one-device", bool, False),
        loads_once=table.get("loads-once", bool, False),
        removed_names=_instead(table.tables("removed-name")),
        removed_members=_instead(table.tables("removed-member")),
        removed_headers=tuple(entry.get("name", str) for entry in table.tables("removed-header")),
    )


_KEYS = (
    "version",
    "before",
    "companion",
    "nccl",
    "nested",
    "checkpoint",
    "trainer",
    "trainer-setting",
    "unbundled",
    "one-device",
    "loads-once",
    "removed-name",
    "removed-member",
    "removed-header",
)


def _nccl(table: Table) -> Nccl:
    return Nccl(
        table.get("legacy", str),
        table.get("switch", str),
        table.get("settings", str),
        table.get("legacy-class", str),
        frozenset(table.strings("new-classes")),
        frozenset(table.strings("legacy-members")),
    )


def _parse_nested(table: Table) -> Nested:
    return Nested(table.strings("makers"), table.strings("safe-globals"), table.get("strided-global", str))


def _checkpoint(table: Table) -> CheckpointApis:
    return CheckpointApis(
        table.strings("savers"), table.strings("writers"), table.strings("harmless-writers")
    )


def _strings(table: Table) -> dict[str, str]:
    return {key: table.get(key, str) for key in table}


def _instead(tables: tuple[Table, ...]) -> dict[str, str]:
    return {entry.get("name", str): entry.get("instead", str) for entry in tables}


def _companion(table: Table) -> BrokenCompanion:
    table.only({"name", "refuses", "why", "instead"})
    return BrokenCompanion(
        table.get("name", str),
        SpecifierSet(table.get("refuses", str)),
        table.get("why", str),
        table.get("instead", str),
    )


def _trainer(table: Table) -> Trainer:
    table.only({"call", "parameter", "values", "default"})
    return Trainer(
        table.get("call", str),
        table.maybe("parameter", str),
        table.strings("values"),
        table.get("default", bool),
    )


def _trainer_setting(table: Table) -> TrainerSetting:
    table.only({"tool", "key", "values", "variable", "method"})
    return TrainerSetting(
        table.get("tool", str),
        table.get("key", str),
        table.strings("values"),
        table.maybe("variable", str),
        table.maybe("method", str),
    )


def _parse_unbundled(table: Table) -> Unbundled:
    table.only({"library", "package", "shown", "host-calls"})
    return Unbundled(
        table.get("library", str),
        table.get("package", str),
        table.get("shown", str),
        table.get("host-calls", str),
    )
