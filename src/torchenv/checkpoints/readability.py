"""Which releases read what: the rules of `checkpoint-rules.toml`, and the decision they lead to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from packaging.version import Version

from torchenv.catalogue.resources import section
from torchenv.checkpoints.formats.inert import Global
from torchenv.checkpoints.formats.pickles import GETATTR, PickleWalk
from torchenv.checkpoints.values import ANY, Certainty, CheckpointNote, Range, Reader
from torchenv.system.documents import Table
from torchenv.system.values import frozen

FILE = "checkpoint-rules.toml"
Kind = Literal["dcp", "save"]


@frozen(kw_only=True)
class Feature:
    """Something in a checkpoint that only some releases can read."""

    code: str
    message: str
    torch_min: str | None = None
    python_min: str | None = None
    system: str | None = None
    weights_only: Range | None = ANY
    nobody: bool = False
    certainty: Certainty = "confirmed"
    imports: tuple[str, ...] = ()  # that torch.load's default wants made before
    packages: tuple[str, ...] = ()  # any version of each; "zstandard or pyzstd" is one of the two

    @classmethod
    def parse(cls, table: Table) -> Feature:
        table.only(
            {"code", "message", "remedy", "torch-min", "python-min", "system", "weights-only"}
            | {"weights-only-max", "nobody", "certainty", "imports", "packages"}
        )
        oldest = table.get("weights-only", str, None)
        remedy = table.get("remedy", str, None)
        certainty = table.one_of("certainty", ("confirmed", "inferred", "unknown"), "confirmed")
        message = table.get("message", str)
        return cls(
            code=table.get("code", str),
            message=f"{message}: {remedy}" if remedy else message,
            torch_min=table.get("torch-min", str, None),
            python_min=table.get("python-min", str, None),
            system=table.get("system", str, None),
            weights_only=None
            if oldest == "refused"
            else Range(oldest=oldest, newest=table.get("weights-only-max", str, None)),
            nobody=table.get("nobody", bool, False),
            certainty=cast("Certainty", certainty),
            imports=tuple(table.strings("imports")),
            packages=tuple(table.strings("packages")),
        )


@frozen(kw_only=True)
class PackageDoor:
    """Names that another package has, and the versions of it that have them.

    The `classes` are data; any other name of the module may be anything, and asks for the package alone.
    """

    package: str
    version: str
    module: str
    classes: frozenset[str]

    @classmethod
    def parse(cls, table: Table) -> PackageDoor:
        table.only({"name", "version", "module", "classes"})
        return cls(
            package=table.get("name", str),
            version=table.get("version", str, ""),
            module=table.get("module", str),
            classes=frozenset(table.strings("classes")),
        )

    def has(self, name: Global) -> bool:
        """Return whether a name is of this module, and one of its classes if they are listed."""
        inside = name.module == self.module or name.module.startswith(f"{self.module}.")
        return inside and (not self.classes or (name.module == self.module and name.name in self.classes))


@frozen(kw_only=True)
class Rules:
    """All of `checkpoint-rules.toml`."""

    oldest: str  # of the releases whose reads were measured
    newest: str
    features: dict[str, Feature]
    pt2: tuple[tuple[str, Range], ...]  # written from which release on, read by which; newest first
    known: dict[Kind, frozenset[Global]]
    named: dict[Global, str]  # the feature that goes with a name
    members: frozenset[tuple[Global, str]]  # of the Enums that releases write
    trusted: dict[Global, str]  # what torch.load's default opens; the feature of those not always trusted
    doors: tuple[PackageDoor, ...]  # the narrower first

    @classmethod
    def parse(cls, table: Table, names: Table) -> Rules:
        table.schema(1, remedy="update torchenv")
        table.only({"schema", "source", "oldest", "newest", "feature", "pt2", "dtype", "known", "package"})
        features = {item.code: item for item in map(Feature.parse, table.tables("feature"))}
        known = table.table("known")
        dtypes = {Global("torch", name) for name in known.strings("dtypes")}
        named = {
            item: code for names, code in known.table("features").raw().items() for item in _globals([names])
        }
        for dtype in table.tables("dtype"):
            dtype.only({"name", "dcp", "save", "weights-only"})
            name = dtype.get("name", str)
            dtypes.add(Global("torch", name))
            for kind in ("dcp", "save"):
                code = f"{kind}-{name}"
                oldest = dtype.get(kind, str)
                features[code] = Feature(
                    code=code,
                    message=f"it holds {name}, which torch {oldest} is the first to read",
                    torch_min=oldest,
                    weights_only=Range(oldest=dtype.get("weights-only", str)),
                )
        trusted = _parse_trusted(names, features)
        return cls(
            oldest=table.get("oldest", str),
            newest=table.get("newest", str),
            trusted=trusted,
            doors=tuple(map(PackageDoor.parse, table.tables("package"))),
            features=features,
            pt2=tuple(
                (
                    item.get("written-from", str),
                    Range(oldest=item.get("torch-min", str), newest=item.get("torch-max", str, None)),
                )
                for item in table.tables("pt2")
            ),
            known={
                "dcp": _globals(known.strings("dcp")) | dtypes,
                "save": _globals(known.strings("save")) | dtypes | trusted.keys(),
            },
            named=named,
            members=frozenset(
                (Global(module, name), member)
                for module, name, *members in map(str.split, known.strings("members"))
                for member in members
            ),
        )

    def takes_members_alone(self, walked: PickleWalk) -> bool:
        """Return whether `getattr` does no more than take members of Enums that releases write."""
        uses = sum(count for taken, count in walked.taken.items() if taken in self.members)
        return 0 < uses == walked.calls.get(GETATTR, 0)

    def of_names(self, names: Iterable[Global], kind: Kind) -> tuple[list[str], list[Global]]:
        """Return the features that names stand for, and the names that no release writes."""
        codes: list[str] = []
        foreign: list[Global] = []
        for name in names:
            code = self.named.get(name) or f"{kind}-{name.name}"
            if code in self.features and (name in self.named or name.module == "torch"):
                codes.append(code)
            elif name not in self.known[kind]:
                if kind == "save" and any(door.classes and door.has(name) for door in self.doors):
                    codes.append("package-class")
                else:
                    foreign.append(name)
            elif kind == "save" and self.trusted.get(name):
                codes.append(self.trusted[name])
        return codes, foreign

    def of_packages(self, names: Iterable[Global]) -> tuple[tuple[str, str], ...]:
        """Return the other packages that names need, and the versions of each that have them all."""
        needed: dict[str, set[str]] = {}
        for name in names:
            door = next((door for door in self.doors if door.has(name)), None)
            if door is not None:
                needed.setdefault(door.package, set()).update({door.version} - {""})
        return tuple((name, ",".join(sorted(versions))) for name, versions in sorted(needed.items()))

    def needs_allowed(self, names: Iterable[Global]) -> tuple[str, ...]:
        """Return the names that have to be allowed before torch.load's default opens a file."""
        return tuple(
            str(name)
            for name in names
            if (code := self.named.get(name) or self._class_code(name))
            and (opens := self.features[code].weights_only) != ANY
            and (opens is None or opens.newest is not None)
        )

    def _class_code(self, name: Global) -> str | None:
        is_class = name not in self.known["save"] and any(
            door.classes and door.has(name) for door in self.doors
        )
        return "package-class" if is_class else None

    def certainty(self, reader: Reader, releases: Iterable[str]) -> Certainty:
        """Return how sure a reader is for these versions of torch: what nobody measured is inferred."""
        if reader.certainty == "confirmed" and any(map(self.is_unmeasured, releases)):
            return "inferred"
        return reader.certainty

    def is_unmeasured(self, torch: str) -> bool:
        """Return whether a version of torch is newer than all whose reads were measured."""
        return Version(torch).release[:2] > Version(self.newest).release

    def reader(self, codes: Iterable[str], **told: Any) -> Reader:
        """Decide who can read what has all of these features; `told` are fields that are known otherwise."""
        features = [self.features[code] for code in dict.fromkeys(codes)]
        doubts: list[Certainty] = [feature.certainty for feature in features]
        certainty = max(doubts, key=_DOUBT) if doubts else "confirmed"
        floor = None if certainty == "unknown" else self.oldest
        torch = Range(oldest=_newest(floor, *(feature.torch_min for feature in features)))
        restricted: Range | None = None
        if all(feature.weights_only is not None for feature in features):
            ranges = [feature.weights_only for feature in features if feature.weights_only]
            newest = [item.newest for item in ranges if item.newest]
            restricted = Range(
                oldest=_newest(torch.oldest, *(item.oldest for item in ranges)),
                newest=min(newest, key=Version) if newest else None,
            )
        packages = dict.fromkeys((name for feature in features for name in feature.packages), "")
        packages |= dict(told.pop("packages", ()))
        reader = Reader(
            torch=torch,
            packages=tuple(packages.items()),
            python_min=_newest(*(feature.python_min for feature in features)),
            system=next((feature.system for feature in features if feature.system), None),
            weights_only=restricted,
            nobody=any(feature.nobody for feature in features),
            certainty=certainty,
            because=tuple(CheckpointNote(feature.code, feature.message) for feature in features),
            imports=tuple(dict.fromkeys(name for feature in features for name in feature.imports)),
        )
        return replace(reader, **told)


@cache
def rules(own: Path | None = None) -> Rules:
    """Read the rules that torchenv is shipped with, a user's `[checkpoints]` laid over them."""
    return Rules.parse(section("checkpoints", own), section("checkpoint-names", own))


def _parse_trusted(names: Table, features: dict[str, Feature]) -> dict[Global, str]:
    """Return every name that some release opens by default; add a feature for each range of releases."""
    names.schema(1, remedy="update torchenv")
    names.only({"schema", "source", "trusted"})
    trusted: dict[Global, str] = {}
    for table in names.tables("trusted"):
        table.only({"weights-only", "weights-only-max", "names"})
        oldest, newest = table.get("weights-only", str, None), table.get("weights-only-max", str, None)
        code = ""
        if oldest or newest:
            code = f"trusted-{oldest or ''}-{newest or ''}".rstrip("-")
            since = f"from torch {oldest} on" if oldest else f"up to torch {newest}"
            features[code] = Feature(
                code=code,
                message=f"it names what torch.load's default opens {since}",
                weights_only=Range(oldest=oldest, newest=newest),
            )
        trusted |= dict.fromkeys(_globals(table.strings("names")), code)
    return trusted


_DOUBT = ("confirmed", "inferred", "unknown").index


def _newest(*versions: str | None) -> str | None:
    return max((version for version in versions if version), key=Version, default=None)


def _globals(lines: Iterable[str]) -> frozenset[Global]:
    # torch Size device
    return frozenset(Global(module, name) for module, *names in map(str.split, lines) for name in names)


def reader_after(reader: Reader, *, portable_path: bool = False) -> Reader:
    """Describe who would read a copy of what has this reader, once its metadata are downgraded.

    `portable_path` is for the path that Python 3.13 writes. Ask this before any file is copied:
    what else is in the checkpoint may need a newer torch all the same.
    """
    mended = list_mended(portable_path=portable_path)
    codes = [note.code for note in reader.because if note.code not in mended]
    return rules().reader(codes, ranks_min=reader.ranks_min)


def list_mended(*, portable_path: bool) -> frozenset[str]:
    """Return the codes of what a downgrade takes out of the metadata of a checkpoint."""
    return frozenset({"dcp-strides", "python-path"} if portable_path else {"dcp-strides"})
