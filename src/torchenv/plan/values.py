"""The values of a decision: what was wished for, what was decided, and every reason on the way."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple

from packaging.version import Version

from torchenv.catalogue.builds import Backend
from torchenv.catalogue.releases import Catalogue, Release
from torchenv.host.model import Capability, Host, SeenEnvironment
from torchenv.system.addresses import TorchIndex
from torchenv.system.documents import plain
from torchenv.system.values import frozen

SCHEMA = "torchenv.plan/1"


@frozen(kw_only=True)
class Wish:
    """What is asked for: the profile with the options of the choice laid over it.

    `devices` None are all of them, and none at all where it is empty: the plan is for a host without any.
    `compiles` says that torch.compile is wanted.

    `backends` restricts the choice; `by_hand` says that a person named the backend on the command line, which
    vouches for what is unknown and never for what is known to fail.

    `program` and `flags` are the words of a command that asks for something else in the same circumstances.
    """

    version: str
    packages: tuple[str, ...] = ()
    python: str | None = None
    free_threaded: bool = False
    backends: tuple[str, ...] = ()
    by_hand: bool = False
    prefer: str = "default"
    devices: tuple[int, ...] | None = None
    capability: Capability | None = None
    fallback: bool = True
    accept_cpu: bool = False
    accept_override: bool = False
    offline: bool = False
    distributed: bool = False
    compiles: bool = False
    torch_index: TorchIndex | None = None
    program: tuple[str, ...] = ("torchenv",)
    flags: tuple[str, ...] = ()

    def write_create(self, version: object, *more: str) -> str:
        """Write the command that creates another release under what else is asked for, with `more` flags."""
        added = (word for word in more if word not in self.flags)
        return f"`{shlex.join([*self.program, 'create', str(version), *self.flags, *added])}`"


@frozen(kw_only=True)
class IndexFacts:
    """What the indexes answered when they were asked; nothing was asked by default.

    `lacks` and `pythons` go by release and backend, as `2.15.0 cu132`. `lacks` holds the packages that the
    index lacks for every Python, and a sentence on each; `pythons` those for which it has all of them.
    """

    unreachable: bool = False
    lacks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pythons: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @staticmethod
    def key(release: Release, backend: Backend) -> str:
        """Name a build as the facts do."""
        return f"{release.version} {backend.tag}"


NOTHING_ASKED = IndexFacts()


@frozen
class Lifeboat:
    """The newest kept checkpoint that the environment in use can read."""

    path: str
    age: timedelta


@frozen(kw_only=True)
class Known:
    """What weighs in the advice and never in the choice.

    `oldest_lifeboat` is the age that the profile allows; `findings` counts an audit's by severity.
    """

    lifeboat: Lifeboat | None = None
    oldest_lifeboat: timedelta | None = None
    findings: Mapping[str, int] = field(default_factory=dict)


NOTHING_KNOWN = Known()


@frozen(kw_only=True)
class Question:
    """All that a decision is made from.

    `active` is the manifest's active environment, where it has one; `like` the minor version of the Python of
    the environment whose packages are carried over.
    """

    host: Host
    wish: Wish
    catalogue: Catalogue
    indexes: IndexFacts = NOTHING_ASKED
    known: Known = NOTHING_KNOWN
    active: SeenEnvironment | None = None
    like: str | None = None
    is_elsewhere: bool = False

    @property
    def in_use(self) -> SeenEnvironment | None:
        """The environment in use: the manifest's, else that of the shell or the project."""
        return self.active or self.host.active


@frozen
class Refusal:
    """Why a build does not suit: a code of the contract, the values behind it, and a sentence made of them.

    `needed` is what the build asks for and `found` what this host has; `device` is the number of the device
    that it turns on. Sentences are made in `refusals` and read by nobody but people.
    """

    code: str
    message: str
    needed: str | None = None
    found: str | None = None
    device: int | None = None


@frozen
class Rejection:
    """A candidate that was looked at and not chosen; its fields are those of the `Refusal`."""

    torch: Version
    backend: str
    code: str
    message: str
    needed: str | None = None
    found: str | None = None
    device: int | None = None

    @classmethod
    def of(cls, release: Release, tag: str, refusal: Refusal) -> Rejection:
        """Return the rejection of one build of a release for a reason."""
        return cls(
            release.version,
            tag,
            refusal.code,
            refusal.message,
            refusal.needed,
            refusal.found,
            refusal.device,
        )

    def __str__(self) -> str:
        return f"torch {self.torch} ({self.backend}): {self.message}"


@frozen
class Remark:
    """Something that the decision does not turn on and that a person should know."""

    code: str
    message: str


class Outcome(Enum):
    """Whether the wish is met, met by an older line, or not at all."""

    AS_REQUESTED = "as-requested"
    FALLBACK = "fallback"
    BLOCKED = "blocked"


@frozen(kw_only=True)
class PlannedPython:
    """The interpreter: `found` on the host, or one to `fetch`, whose version is then a minor such as 3.13."""

    version: Version
    path: str | None
    free_threaded: bool
    source: str

    @property
    def minor(self) -> str:
        """The version by which wheels name it, such as `3.12` or `3.14t`."""
        return f"{self.version.major}.{self.version.minor}{'t' if self.free_threaded else ''}"


@frozen
class PassedPython:
    """An interpreter that was looked at and not chosen."""

    version: str
    path: str
    why: str


@frozen
class PlannedDevice:
    """A device of the host, and whether the plan serves it."""

    vendor: str
    index: int
    name: str
    served: bool


@frozen
class Advice:
    """What a careful colleague would say: upgrade, upgrade-at-checkpoint-boundary or stay."""

    verdict: str
    reasons: tuple[str, ...]


class Download(NamedTuple):
    """What is to be fetched: about so many MiB, None where that is not known; or torch is cached already."""

    mib: int | None
    cached: bool


@frozen(kw_only=True)
class Build:
    """The decision itself. `index` None is the default package index; `download` None is not looked at."""

    release: Release
    backend: Backend
    index: str | None
    python: PlannedPython
    requirements: tuple[str, ...]
    unproven: bool = False
    download: Download | None = None

    @property
    def name(self) -> str:
        """The environment's name, such as `2.15.0-cu132-py3.12`."""
        return f"{self.release.version}-{self.backend.tag}-py{self.python.minor}"

    @property
    def torch(self) -> str:
        """The torch that must be found inside, with its local label where one is known."""
        return str(self.release.version) + (f"+{self.backend.local}" if self.backend.local else "")


@frozen(kw_only=True)
class Plan:
    """A decision with its reasons; `build` is None where nothing suits.

    `opens` is what would give this host the release that was asked for, such as a newer driver; `offered`
    are the builds that the hint of a blocked plan names.
    """

    requested: str
    outcome: Outcome
    build: Build | None
    why: tuple[str, ...] = ()
    hint: str | None = None
    opens: str | None = None
    devices: tuple[PlannedDevice, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    pythons: tuple[PassedPython, ...] = ()
    warnings: tuple[Remark, ...] = ()
    advice: Advice = Advice("stay", ())
    offered: tuple[Build, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """Return the `torchenv.plan/1` document."""
        build = self.build
        return {
            "schema": SCHEMA,
            "requested": self.requested,
            "outcome": self.outcome.value,
            "torch": build and str(build.release.version),
            "backend": build and build.backend.tag,
            "index": build and build.index,
            "python": build and plain(build.python),
            "requirements": list(build.requirements) if build else [],
            "environment": build and build.name,
            "unproven": bool(build and build.unproven),
            "download": build and build.download and build.download._asdict(),
            "why": list(self.why),
            "hint": self.hint,
            "opens": self.opens,
            "pip": build and pip_command(build),
            "devices": plain(self.devices),
            "rejected": plain(self.rejected),
            "pythons_passed_over": plain(self.pythons),
            "warnings": plain(self.warnings),
            "advice": plain(self.advice),
        }


def pip_command(build: Build) -> str:
    """Write the plain pip command that would install the same torch into an environment of one's own."""
    index = [] if build.index is None else ["--index-url", build.index]
    return shlex.join(["python", "-m", "pip", "install", *build.requirements, *index])
