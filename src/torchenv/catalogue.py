"""What PyTorch publishes: releases, their builds, and what each build needs of a machine.

Every fact is data (`data/catalogue.toml`, or a user's own file); this module holds no backend's tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TypeVar

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchenv.errors import InputError
from torchenv.host import Capability, WrittenVersion
from torchenv.tables import Table, nearest

SCHEMA = 1
CERTAINTIES = ("wheel", "notes", "documented", "inferred", "uncertain")

# Among what a release breaks: the distributed checkpoints that it saves cannot be read by older ones.
ONE_WAY = "dcp-metadata"

Named = TypeVar("Named")


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRule:
    """Which GPUs run the code of a build, up to a CUDA version (`below`), or for all later ones.

    Code for capability X runs on devices of the same major and a minor not below, less `exclude[X]`;
    code under `only` runs on the devices listed there and on no others.
    Source: `DEVICE_REQUIREMENT` in torch/cuda/__init__.py.
    """

    below: Version | None
    exclude: Mapping[Capability, frozenset[Capability]]
    only: Mapping[Capability, frozenset[Capability]]

    def runs(self, code: Capability, device: Capability) -> bool:
        """Say whether code made for `code` runs on a device of capability `device`."""
        if code in self.only:
            return device in self.only[code]
        same = code.major == device.major and device.minor >= code.minor
        return same and device not in self.exclude.get(code, ())


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverFloor:
    """The oldest driver that runs a CUDA major, by system; `tegra` is a system of its own here."""

    name: str
    by_system: Mapping[str, WrittenVersion]


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """GPUs below a capability and the driver branches that drive them."""

    name: str
    below: Capability
    first: Version | None
    last: Version | None

    def drives(self, driver: Version) -> bool:
        """Say whether a driver knows this generation."""
        late = self.last is not None and driver.major > self.last.major
        early = self.first is not None and driver.major < self.first.major
        return not late and not early


@dataclass(frozen=True, kw_only=True, slots=True)
class Cuda:
    """What a CUDA build needs: a driver of its major, and a GPU among its codes (by processor)."""

    version: Version
    floor: DriverFloor
    paired: WrittenVersion | None
    codes: Mapping[str, tuple[Capability, ...]]
    rule: KernelRule

    def serves(self, device: Capability, platform: str) -> bool:
        """Say whether the build for `platform` holds code that runs on the device."""
        codes = self.codes.get(platform.rpartition("-")[2], ())
        return any(self.rule.runs(code, device) for code in codes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rocm:
    """What a ROCm build needs: a GPU among its gfx targets."""

    gfx: frozenset[str]


@dataclass(frozen=True, slots=True)
class Xpu:
    """What an XPU build needs: an Intel GPU that PyTorch's documentation names."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU build needs no device; on macOS it is the build with MPS in it."""


Needs = Cuda | Rocm | Xpu | Cpu


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """One build line of a release: its tag is the last part of its index's address."""

    tag: str
    needs: Needs
    local: str | None
    platforms: frozenset[str]
    pythons: tuple[str, ...] | None
    family: tuple[str, ...]
    certainty: str
    source: str

    @property
    def vendor(self) -> str:
        """The maker of the devices that it is for, or `cpu`."""
        match self.needs:
            case Cuda():
                return "nvidia"
            case Rocm():
                return "amd"
            case Xpu():
                return "intel"
            case Cpu():
                return "cpu"


@dataclass(frozen=True, kw_only=True, slots=True)
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
        """Say whether it is built for a backend; None where nobody knows."""
        if tag in self.missing:
            return False
        if self.backends is None or tag in self.backends:
            return True
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class MacFloor:
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
        return next((each for each in self.backends if each.tag == tag), None)

    def pythons_of(self, backend: Backend, platform: str) -> tuple[str, ...]:
        """Give the Pythons that a build line has wheels for, free-threaded ones as `3.14t`.

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

    @cached_property
    def tags(self) -> frozenset[str]:
        """The tags of all backends of all releases."""
        return frozenset(each.tag for release in self.releases for each in release.backends)

    @cached_property
    def family(self) -> frozenset[str]:
        """The names of the packages that belong to torch in any release."""
        return frozenset({"torch"}.union(*(release.companions for release in self.releases)))

    def brought(self, name: str) -> bool:
        """Say whether a package, by its normalised name, is one that torch's own wheels bring along."""
        backends = (backend for release in self.releases for backend in release.backends)
        return any(fnmatchcase(name, each) for each in self.brings) or any(
            name in each.family for each in backends
        )

    def matching(self, wanted: str) -> tuple[Release, ...]:
        """Give the releases that a version, a line, a range or `latest` means, newest first.

        A line such as `2.15` means its newest patch alone. Raises `InputError` where nothing matches.
        """
        text = wanted.strip()
        if text == "latest":
            return self.releases[:1]
        if re.fullmatch(r"\d+\.\d+", text):
            found = tuple(each for each in self.releases if each.line == text)[:1]
        else:
            found = self._in_range(text)
        if not found:
            newest = self.releases[0].version
            known = sorted({each.line for each in self.releases}, key=Version)
            hint = nearest(text, known) or f"the newest is {newest}; `torchenv catalogue show` lists all"
            raise InputError(f"torch {text} is not in the catalogue", hint=hint)
        return found

    def neighbours(self, release: Release) -> tuple[Release, ...]:
        """Give the other releases of its minor line and of the one before, newest first."""
        older = [each for each in self.releases if Version(each.line) < Version(release.line)]
        lines = {release.line, older[0].line} if older else {release.line}
        return tuple(each for each in self.releases if each.line in lines and each != release)

    def closed_door(self, older: Version, newer: Version) -> bool:
        """Say whether checkpoints saved by `newer` are lost on `older`, by a release on the way."""
        return any(ONE_WAY in each.breaks for each in self.releases if older < each.version <= newer)

    def reads(self, torch: Version) -> str:
        """Name the newest line whose distributed checkpoints a torch reads, such as `dcp<=2.14`."""
        doors = [each.version for each in self.releases if ONE_WAY in each.breaks and torch < each.version]
        open_to = [each for each in self.releases if not doors or each.version < min(doors)]
        return f"dcp<={open_to[0].line if open_to else torch}"

    def generation(self, capability: Capability) -> Generation | None:
        """Give the generation whose driver support has ended or began late, if it is one."""
        return next((each for each in self.generations if capability < each.below), None)

    def capability_named(self, name: str) -> Capability | None:
        """Look a GPU's capability up by its product name: whole words, the longest match wins."""
        return _longest(name, self.nvidia_names)

    def gfx_named(self, name: str) -> str | None:
        """Look an AMD GPU's gfx target up by its product name, in the same way."""
        return _longest(name, self.amd_names)

    def _in_range(self, text: str) -> tuple[Release, ...]:
        spelled = f"=={text}" if re.match(r"\d", text) else text
        try:
            wanted = SpecifierSet(spelled)
            return tuple(each for each in self.releases if each.version in wanted)
        except ValueError:
            # No specifier, or numbers that are too long for one.
            hint = "write a version (2.15.0), a line (2.15), a range (>=2.14,<2.16) or `latest`"
            raise InputError(f"{text!r} is not a torch version", hint=hint) from None

    @classmethod
    def parse(cls, table: Table) -> Catalogue:
        """Read a catalogue document; raises `InputError` naming the file, the release and the key."""
        table.schema(SCHEMA, remedy="take the catalogue that came with this torchenv")
        table.only(_KEYS)
        index = table.table("index")
        names = table.table("names")
        parts = _Parts(
            floors={each.name: each for each in _floors(table.table("driver-floor"))},
            paired=table.table("driver-paired"),
            rules=tuple(sorted(map(_rule, table.tables("kernel-rule")), key=_reach)),
        )
        releases = (_release(each, parts) for each in table.tables("release"))
        return cls(
            compiled=table.get("compiled", str),
            index_root=index.get("root", str),
            releases=tuple(sorted(releases, key=lambda each: each.version, reverse=True)),
            generations=tuple(
                sorted(map(_generation, table.tables("generation")), key=lambda each: each.below)
            ),
            capabilities=_by_platform(table.table("capabilities")),
            no_wheels=_texts(table.table("no-wheels")),
            nvidia_names={
                name: _capability(names.table("nvidia"), text)
                for text in names.table("nvidia")
                for name in names.table("nvidia").strings(text)
            },
            amd_names={name: gfx for gfx in names.table("amd") for name in names.table("amd").strings(gfx)},
            from_source=_texts(table.table("from-source")),
            brings=table.table("brings").strings("names"),
        )


_KEYS = frozenset(
    {"schema", "compiled", "index", "driver-floor", "driver-paired", "generation", "capabilities"}
    | {"kernel-rule", "no-wheels", "from-source", "brings", "names", "release"}
)
_RELEASE_KEYS = frozenset(
    {"version", "date", "requires-python", "pythons", "glibc", "macos", "default", "package-index"}
    | {"download-mib", "longest-path", "breaks", "note", "cudnn", "nccl", "companion", "backend"}
)
_BACKEND_KEYS = frozenset(
    {"tag", "kind", "cuda", "driver-floor", "codes", "gfx", "local", "platforms", "pythons"}
    | {"family", "certainty", "source", "note"}
)
_COMPANION_KEYS = frozenset({"name", "version", "backends", "missing", "pythons", "source", "note"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """What backends refer to by name."""

    floors: Mapping[str, DriverFloor]
    paired: Table
    rules: tuple[KernelRule, ...]


def _release(table: Table, parts: _Parts) -> Release:
    table.only(_RELEASE_KEYS)
    macos = table.table("macos")
    return Release(
        version=_version(table, "version"),
        date=table.get("date", str),
        requires_python=SpecifierSet(table.get("requires-python", str)),
        pythons=table.strings("pythons"),
        glibc=_version(table, "glibc"),
        macos=MacFloor(installs=_version(macos, "installs"), mps=_version(macos, "mps")),
        defaults=_texts(table.table("default")),
        package_index=_texts(table.table("package-index")),
        download_mib={key: table.table("download-mib").get(key, int) for key in table.table("download-mib")},
        longest_path=table.maybe("longest-path", int),
        backends=tuple(_backend(each, parts) for each in table.tables("backend")),
        companions={each.name: each for each in map(_companion, table.tables("companion"))},
        breaks=table.strings("breaks"),
    )


def _backend(table: Table, parts: _Parts) -> Backend:
    table.only(_BACKEND_KEYS)
    return Backend(
        tag=_tag(table),
        needs=_needs(table, parts),
        local=table.maybe("local", str),
        platforms=frozenset(table.strings("platforms")),
        pythons=table.strings("pythons") if "pythons" in table else None,
        family=table.strings("family"),
        certainty=table.one_of("certainty", CERTAINTIES),
        source=table.get("source", str),
    )


def _tag(table: Table) -> str:
    tag = table.get("tag", str)
    # It becomes part of an address and of a directory's name.
    if not re.fullmatch(r"[a-z][a-z0-9.]*", tag):
        raise table.wrong("tag", f"{tag!r} cannot name a backend")
    return tag


def _needs(table: Table, parts: _Parts) -> Needs:
    match table.one_of("kind", ("cuda", "rocm", "xpu", "cpu")):
        case "cuda":
            version = _version(table, "cuda")
            floor = table.get("driver-floor", str)
            if floor not in parts.floors:
                raise table.wrong("driver-floor", f"{floor!r} is not described", nearest(floor, parts.floors))
            rule = next((each for each in parts.rules if each.below is None or version < each.below), None)
            if rule is None:
                raise table.wrong("cuda", f"no kernel rule covers CUDA {version}")
            paired = parts.paired.maybe(str(version), str)
            return Cuda(
                version=version,
                floor=parts.floors[floor],
                paired=None if paired is None else WrittenVersion(paired),
                codes=_by_platform(table.table("codes")),
                rule=rule,
            )
        case "rocm":
            return Rocm(gfx=frozenset(table.strings("gfx")))
        case "xpu":
            return Xpu()
        case _:
            return Cpu()


def _companion(table: Table) -> Companion:
    table.only(_COMPANION_KEYS)
    return Companion(
        name=table.get("name", str),
        version=_version(table, "version"),
        backends=frozenset(table.strings("backends")) if "backends" in table else None,
        missing=frozenset(table.strings("missing")),
        pythons=table.strings("pythons") if "pythons" in table else None,
    )


def _floors(table: Table) -> Iterable[DriverFloor]:
    for name in table:
        by_system = table.table(name)
        by_system.only({"linux", "windows", "tegra", "source"})
        systems = [each for each in by_system if each != "source"]
        yield DriverFloor(name=name, by_system={each: _version(by_system, each) for each in systems})


def _generation(table: Table) -> Generation:
    table.only({"name", "below", "first-driver", "last-driver", "source"})
    return Generation(
        name=table.get("name", str),
        below=_capability(table, table.get("below", str)),
        first=_version(table, "first-driver") if "first-driver" in table else None,
        last=_version(table, "last-driver") if "last-driver" in table else None,
    )


def _rule(table: Table) -> KernelRule:
    table.only({"below", "exclude", "only", "source"})
    return KernelRule(
        below=_version(table, "below") if "below" in table else None,
        exclude=_pairs(table.table("exclude")),
        only=_pairs(table.table("only")),
    )


def _reach(rule: KernelRule) -> tuple[bool, Version]:
    # The rule without an end covers what the others leave, so it comes last.
    return rule.below is None, rule.below or Version("0")


def _pairs(table: Table) -> Mapping[Capability, frozenset[Capability]]:
    return {
        _capability(table, code): frozenset(_capability(table, each) for each in table.strings(code))
        for code in table
    }


def _by_platform(table: Table) -> Mapping[str, tuple[Capability, ...]]:
    return {key: tuple(_capability(table, each) for each in table.strings(key)) for key in table}


def _capability(table: Table, text: str) -> Capability:
    capability = Capability.parse(text)
    if capability is None:
        raise InputError(f"{table.source}: {text!r} is not a compute capability such as 8.9")
    return capability


def _version(table: Table, key: str) -> WrittenVersion:
    text = table.get(key, str)
    version = WrittenVersion.read(text)
    if version is None:
        raise table.wrong(key, f"{text!r} is not a version")
    return version


def _texts(table: Table) -> Mapping[str, str]:
    return {key: table.get(key, str) for key in table}


def _longest(name: str, known: Mapping[str, Named]) -> Named | None:
    words = _words(name)
    matches = [each for each in known if _within(_words(each), words)]
    return known[max(matches, key=lambda each: len(_words(each)))] if matches else None


def _words(name: str) -> list[str]:
    # Tesla V100-SXM2-32GB, GRID A100D-80C, TITAN X (Pascal), AMD Radeon(TM) 8060S Graphics
    plain = re.sub(r"\((?:tm|r|c)\)", " ", name.casefold())
    return re.findall(r"[a-z0-9]+", plain)


def _within(part: list[str], whole: list[str]) -> bool:
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))
