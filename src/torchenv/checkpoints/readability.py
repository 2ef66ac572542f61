"""Which releases read what: the rules of `checkpoint-rules.toml`, and the decision they lead to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from packaging.version import Version

from torchenv.catalogue.resources import section
from torchenv.checkpoints.formats.inert import Global
from torchenv.checkpoints.formats.pickles import GETATTR, PickleWalk
from torchenv.checkpoints.values import ANY, Certainty, CheckpointNote, Range, Reader
from torchenv.system.documents import Table

FILE = "checkpoint-rules.toml"
Kind = Literal["dcp", "save"]


@dataclass(frozen=True, slots=True, kw_only=True)
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

    @classmethod
    def parse(cls, table: Table) -> Feature:
        table.only(
            {"code", "message", "remedy", "torch-min", "python-min", "system", "weights-only"}
            | {"weights-only-max", "nobody", "certainty"}
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
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All of `checkpoint-rules.toml`."""

    oldest: str  # of the releases whose reads were measured
    newest: str
    features: dict[str, Feature]
    pt2: tuple[tuple[str, Range], ...]  # written from which release on, read by which; newest first
    known: dict[Kind, frozenset[Global]]
    named: dict[Global, str]  # the feature that goes with a name
    members: frozenset[tuple[Global, str]]  # of the Enums that releases write

    @classmethod
    def parse(cls, table: Table) -> Rules:
        table.schema(1, remedy="update torchenv")
        table.only({"schema", "source", "oldest", "newest", "feature", "pt2", "dtype", "known"})
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
        return cls(
            oldest=table.get("oldest", str),
            newest=table.get("newest", str),
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
                "save": _globals(known.strings("save")) | dtypes,
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
                foreign.append(name)
        return codes, foreign

    def needs_allowed(self, names: Iterable[Global]) -> tuple[str, ...]:
        """Return the names that have to be allowed before torch.load's default opens a file."""
        return tuple(
            str(name)
            for name in names
            if (code := self.named.get(name))
            and (opens := self.features[code].weights_only) != ANY
            and (opens is None or opens.newest is not None)
        )

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
        reader = Reader(
            torch=torch,
            python_min=_newest(*(feature.python_min for feature in features)),
            system=next((feature.system for feature in features if feature.system), None),
            weights_only=restricted,
            nobody=any(feature.nobody for feature in features),
            certainty=certainty,
            because=tuple(CheckpointNote(feature.code, feature.message) for feature in features),
        )
        return replace(reader, **told)


@cache
def rules(own: Path | None = None) -> Rules:
    """Read the rules that torchenv is shipped with, a user's `[checkpoints]` laid over them."""
    return Rules.parse(section("checkpoints", own))


_DOUBT = ("confirmed", "inferred", "unknown").index


def _newest(*versions: str | None) -> str | None:
    return max((version for version in versions if version), key=Version, default=None)


def _globals(lines: Iterable[str]) -> frozenset[Global]:
    # torch Size device
    return frozenset(Global(module, name) for module, *names in map(str.split, lines) for name in names)
