"""All releases, newest first, and what is asked of them by version, by machine and by name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchenv.catalogue.builds import Backend, Generation
from torchenv.errors import InputError
from torchenv.host.model import Capability
from torchenv.system.documents import nearest
from torchenv.system.values import frozen

# Among what a release breaks: the distributed checkpoints that it saves cannot be read by older ones.
ONE_WAY = "dcp-metadata"

Named = TypeVar("Named")


@frozen(kw_only=True)
class Companion:
    """A package of torch's family and its version for one torch release.

    `backends` are known to exist and `missing` known not to; of the others nothing is known.
    """

    name: str
    version: Version
    backends: frozenset[str] | None
    missing: frozenset[str]
    pythons: tuple[str, ...] | None

    def exists(self, tag: str) -> bool | None:
        """Return whether it is built for a backend; None where nobody knows."""
        if tag in self.missing:
            return False
        if self.backends is None or tag in self.backends:
            return True
        return None


@frozen(kw_only=True)
class AvoidedPython:
    """Interpreters that a release, or a package beside it, works badly with, or not at all."""

    python: SpecifierSet
    torch: SpecifierSet
    package: str | None
    package_version: SpecifierSet
    installs: bool
    why: str

    def applies(self, python: Version, release: Release, packages: Collection[str]) -> bool:
        """Return whether it speaks of this interpreter beside this release and the packages asked for."""
        if python not in self.python or release.version not in self.torch:
            return False
        if self.package is None:
            return True
        companion = release.companions.get(self.package)
        return (
            self.package in packages and companion is not None and companion.version in self.package_version
        )


class MacFloor(NamedTuple):
    """The macOS that a release's wheel installs on, and the one that its MPS needs."""

    installs: Version
    mps: Version


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Release:
    """One torch release and its builds, the builds in the order of preference."""

    version: Version
    date: str
    requires_python: SpecifierSet
    pythons: tuple[str, ...]
    preferred_pythons: Mapping[str, tuple[str, ...]]
    glibc: Version
    macos: MacFloor
    defaults: Mapping[str, str]
    package_index: Mapping[str, str]
    download_mib: Mapping[str, int]
    longest_path: int | None
    backends: tuple[Backend, ...]
    companions: Mapping[str, Companion]
    breaks: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The minor line that it belongs to, such as `2.15`."""
        return f"{self.version.major}.{self.version.minor}"

    def backend(self, tag: str) -> Backend | None:
        """Find a build line by its tag."""
        return next((item for item in self.backends if item.tag == tag), None)

    def list_preferred_pythons(self, platform: str) -> tuple[str, ...]:
        """Return the Pythons for which torch and all that goes with it works, the best first."""
        return self.preferred_pythons.get(platform, self.preferred_pythons.get("default", ()))

    def pythons_of(self, backend: Backend, platform: str) -> tuple[str, ...]:
        """Return the Pythons that a build line has wheels for, free-threaded ones as `3.14t`.

        macOS takes its wheels from the default package index, and `pythons` are what is there.
        """
        if backend.pythons is None or platform.startswith("darwin"):
            return self.pythons
        return backend.pythons


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """All releases, newest first, and what is known of the hardware that they run on."""

    compiled: str
    index_root: str
    releases: tuple[Release, ...]
    generations: tuple[Generation, ...]
    capabilities: Mapping[str, tuple[Capability, ...]]
    no_wheels: Mapping[str, str]
    nvidia_names: Mapping[str, Capability] = field(repr=False)
    amd_names: Mapping[str, str] = field(repr=False)
    from_source: Mapping[str, str] = field(default_factory=dict)
    brings: tuple[str, ...] = ()
    avoided: tuple[AvoidedPython, ...] = ()
    doubts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    triton: Mapping[str, str] = field(default_factory=dict)

    def find_avoided(
        self, python: Version, release: Release, packages: Collection[str]
    ) -> AvoidedPython | None:
        """Return what speaks against an interpreter, what does not install before what works badly."""
        found = [known for known in self.avoided if known.applies(python, release, packages)]
        return min(found, key=lambda known: known.installs, default=None)

    @cached_property
    def tags(self) -> frozenset[str]:
        """The tags of all backends of all releases."""
        return frozenset(item.tag for release in self.releases for item in release.backends)

    @cached_property
    def family(self) -> frozenset[str]:
        """The names of the packages that belong to torch in any release."""
        return frozenset({"torch"}.union(*(release.companions for release in self.releases)))

    def is_brought_along(self, name: str) -> bool:
        """Return whether a package, by its normalised name, is one that torch's own wheels bring along."""
        backends = (backend for release in self.releases for backend in release.backends)
        return any(fnmatchcase(name, bring) for bring in self.brings) or any(
            name in item.family for item in backends
        )

    def find_line_before(self, torch: str) -> str | None:
        """Return the line to fall back to from a torch of the newest line; None for an older torch."""
        lines = list(dict.fromkeys(release.line for release in self.releases))
        is_newest = torch.startswith(f"{lines[0]}.")
        return lines[1] if is_newest and len(lines) > 1 else None

    def matching(self, wanted: str) -> tuple[Release, ...]:
        """Return the releases that a version, a line, a range or `latest` means, newest first.

        A line such as `2.15` means its newest patch alone. Raises `InputError` where nothing matches.
        """
        text = wanted.strip()
        if text == "latest":
            return self.releases[:1]
        if re.fullmatch(r"\d+\.\d+", text):
            found = tuple(release for release in self.releases if release.line == text)[:1]
        else:
            found = self._in_range(text)
        if not found:
            newest = self.releases[0].version
            known = sorted({release.line for release in self.releases}, key=Version)
            # 2.51 is 2.15 with its digits turned; of 2.99 nobody knows what it was to be.
            turned = nearest(text, [line for line in known if sorted(line) == sorted(text)])
            hint = turned or f"use {newest}, the newest; `torchenv catalogue show` lists all"
            raise InputError(f"torch {text} is not in the catalogue", hint=hint)
        return found

    def neighbours(self, release: Release) -> tuple[Release, ...]:
        """Return the other releases of its minor line and of the one before, newest first."""
        older = [item for item in self.releases if Version(item.line) < Version(release.line)]
        lines = {release.line, older[0].line} if older else {release.line}
        return tuple(item for item in self.releases if item.line in lines and item != release)

    def has_closed_door(self, older: Version, newer: Version) -> bool:
        """Return whether checkpoints saved by `newer` are lost on `older`, by a release on the way."""
        return any(ONE_WAY in release.breaks for release in self.releases if older < release.version <= newer)

    def reads(self, torch: Version) -> str:
        """Name the newest line whose distributed checkpoints a torch reads, such as `dcp<=2.14`."""
        doors = [
            release.version
            for release in self.releases
            if ONE_WAY in release.breaks and torch < release.version
        ]
        open_to = [release for release in self.releases if not doors or release.version < min(doors)]
        return f"dcp<={open_to[0].line if open_to else torch}"

    def generation(self, capability: Capability) -> Generation | None:
        """Return the generation whose driver support has ended or began late, if it is one."""
        return next((item for item in self.generations if capability < item.below), None)

    def find_capability(self, name: str) -> Capability | None:
        """Look a GPU's capability up by its product name: whole words, the longest match wins."""
        return _longest(name, self.nvidia_names)

    def find_gfx(self, name: str) -> str | None:
        """Look an AMD GPU's gfx target up by its product name, in the same way."""
        return _longest(name, self.amd_names)

    def _in_range(self, text: str) -> tuple[Release, ...]:
        spelled = f"=={text}" if re.match(r"\d", text) else text
        try:
            wanted = SpecifierSet(spelled)
            return tuple(release for release in self.releases if release.version in wanted)
        except ValueError:
            # No specifier, or numbers that are too long for one.
            hint = "write a version (2.15.0), a line (2.15), a range (>=2.14,<2.16) or `latest`"
            raise InputError(f"`{text}` is not a torch version", hint=hint) from None


def _longest(name: str, known: Mapping[str, Named]) -> Named | None:
    words = _words(name)
    matches = [item for item in known if _within(_words(item), words)]
    return known[max(matches, key=lambda match_: len(_words(match_)))] if matches else None


# A fleet has a handful of cards, and the catalogue a few hundred names.
@lru_cache(maxsize=4096)
def _words(name: str) -> tuple[str, ...]:
    # Tesla V100-SXM2-32GB, GRID A100D-80C, TITAN X (Pascal), AMD Radeon(TM) 8060S Graphics
    plain = re.sub(r"\((?:tm|r|c)\)", " ", name.casefold())
    return tuple(re.findall(r"[a-z0-9]+", plain))


def _within(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))
