"""What one release takes away or changes: the facts that the rules of the audit compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchenv.catalogue.resources import BREAKAGES
from torchenv.errors import InputError
from torchenv.system.documents import Table

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class BrokenCompanion:
    """Releases of a package that do not import beside this torch, and the one that does."""

    name: str
    refuses: SpecifierSet
    instead: str


@dataclass(frozen=True, slots=True)
class Trainer:
    """A call of a trainer that writes `torch.distributed.checkpoint` under the hood.

    Without a parameter it always does; else only with one of the values, or by default.
    """

    call: str
    parameter: str | None
    values: tuple[str, ...]
    default: bool


@dataclass(frozen=True, slots=True)
class Nccl:
    legacy: str
    switch: str
    settings: str
    legacy_members: frozenset[str]


@dataclass(frozen=True, slots=True)
class Nested:
    makers: tuple[str, ...]
    safe_globals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckpointApis:
    savers: tuple[str, ...]
    writers: tuple[str, ...]
    harmless_writers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakages:
    """The facts for one release.

    `left` maps a backend to the last torch it had, `removed_gfx` an override to a chip,
    `removed_names` and `removed_members` a name to the advice for it.
    """

    version: Version
    before: Version
    dropped_pythons: tuple[str, ...]
    pythons: tuple[str, ...]
    backends: tuple[str, ...]
    default_backend: str
    left: Mapping[str, str]
    mps_macos: int
    removed_gfx: Mapping[str, str]
    removed_gfx_backend: str
    companions: tuple[BrokenCompanion, ...]
    nccl: Nccl
    nested: Nested
    checkpoint: CheckpointApis
    trainers: tuple[Trainer, ...]
    removed_names: Mapping[str, str]
    removed_members: Mapping[str, str]
    removed_headers: tuple[str, ...]
    spellings: Mapping[str, str]

    @classmethod
    def read_packaged(cls) -> Breakages:
        """Read what the newest release breaks, as far as torchenv knows."""
        return cls.read(BREAKAGES.read_text(encoding="utf-8"), BREAKAGES.name)

    @classmethod
    def read(cls, text: str, source: str, version: str | None = None) -> Breakages:
        """Read the facts of one release, by default the newest in the file.

        Raises `InputError` where the file is wrong or does not know the release.
        """
        table = Table.from_toml(text, source)
        table.only({"schema", "spellings", "release"})
        table.schema(1, remedy="upgrade torchenv")
        releases = {Version(each.get("version", str)): each for each in table.tables("release")}
        wanted = Version(version) if version else max(releases)
        for known, each in releases.items():
            if known.release[:2] == wanted.release[:2]:
                return cls._parse(each, _strings(table.table("spellings")))
        known_lines = ", ".join(str(each) for each in sorted(releases))
        raise InputError(
            f"{source}: nothing is known of what torch {wanted} breaks",
            hint=f"audit for one of {known_lines}",
        )

    @classmethod
    def _parse(cls, table: Table, spellings: Mapping[str, str]) -> Breakages:
        table.only(_KEYS)
        nccl, nested = table.table("nccl"), table.table("nested")
        checkpoint = table.table("checkpoint")
        return cls(
            version=Version(table.get("version", str)),
            before=Version(table.get("before", str)),
            dropped_pythons=table.strings("dropped-pythons"),
            pythons=table.strings("pythons"),
            backends=table.strings("backends"),
            default_backend=table.get("default-backend", str),
            left=_strings(table.table("left")),
            mps_macos=table.get("mps-macos", int),
            removed_gfx=_strings(table.table("removed-gfx")),
            removed_gfx_backend=table.get("removed-gfx-backend", str),
            companions=tuple(_companion(each) for each in table.tables("companion")),
            nccl=Nccl(
                nccl.get("legacy", str),
                nccl.get("switch", str),
                nccl.get("settings", str),
                frozenset(nccl.strings("legacy-members")),
            ),
            nested=Nested(nested.strings("makers"), nested.strings("safe-globals")),
            checkpoint=CheckpointApis(
                checkpoint.strings("savers"),
                checkpoint.strings("writers"),
                checkpoint.strings("harmless-writers"),
            ),
            trainers=tuple(_trainer(each) for each in table.tables("trainer")),
            removed_names=_instead(table.tables("removed-name")),
            removed_members=_instead(table.tables("removed-member")),
            removed_headers=tuple(each.get("name", str) for each in table.tables("removed-header")),
            spellings=spellings,
        )

    def is_published(self, backend: str) -> bool:
        return backend in self.backends

    def last_on(self, backend: str) -> str:
        """Describe which torch a backend that left still has."""
        last = self.left.get(backend)
        return f"its last torch is {last}" if last else "it has older releases only"

    def is_pinned_by(self, specifier: SpecifierSet) -> bool:
        """Return whether a requirement on torch lets only this release line or later ones in."""
        return any(
            each.operator in {"==", "===", "~=", ">="}
            and Version(each.version.removesuffix(".*")).release[:2] >= self.version.release[:2]
            for each in specifier
        )

    def is_admitted_by(self, specifier: SpecifierSet) -> bool:
        """Return whether a requirement on torch lets this release, or a later patch of it, in."""
        bare = SpecifierSet(",".join(str(each).partition("+")[0] for each in specifier))
        return self.is_pinned_by(specifier) or bare.contains(self.version, prereleases=True)


_KEYS = (
    "version",
    "before",
    "dropped-pythons",
    "pythons",
    "backends",
    "default-backend",
    "left",
    "mps-macos",
    "removed-gfx",
    "removed-gfx-backend",
    "companion",
    "nccl",
    "nested",
    "checkpoint",
    "trainer",
    "removed-name",
    "removed-member",
    "removed-header",
)


def _strings(table: Table) -> dict[str, str]:
    return {key: table.get(key, str) for key in table}


def _instead(tables: tuple[Table, ...]) -> dict[str, str]:
    return {each.get("name", str): each.get("instead", str) for each in tables}


def _companion(table: Table) -> BrokenCompanion:
    table.only({"name", "refuses", "instead"})
    return BrokenCompanion(
        table.get("name", str),
        SpecifierSet(table.get("refuses", str)),
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
