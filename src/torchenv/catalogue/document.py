"""The catalogue's document turned into releases and builds, or the key that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchenv.catalogue.builds import (
    Backend,
    Cpu,
    Cuda,
    DriverFloor,
    Generation,
    KernelRule,
    Needs,
    Rocm,
    Xpu,
)
from torchenv.catalogue.releases import AvoidedPython, Catalogue, Companion, MacFloor, Release
from torchenv.errors import InputError
from torchenv.host.model import Capability, WrittenVersion
from torchenv.system.documents import Table, nearest

SCHEMA = 1
CERTAINTIES = ("wheel", "notes", "documented", "inferred", "uncertain")


def parse(table: Table) -> Catalogue:
    """Read a catalogue document; raises `InputError` naming the file, the release and the key."""
    table.schema(SCHEMA, remedy="take the catalogue that came with this torchenv")
    table.only(_KEYS)
    index = table.table("index")
    names = table.table("names")
    parts = _Parts(
        floors={floor.name: floor for floor in _floors(table.table("driver-floor"))},
        paired=table.table("driver-paired"),
        rules=tuple(sorted(map(_rule, table.tables("kernel-rule")), key=_reach)),
    )
    releases = (_release(item, parts) for item in table.tables("release"))
    return Catalogue(
        compiled=table.get("compiled", str),
        index_root=index.get("root", str),
        releases=tuple(sorted(releases, key=lambda release: release.version, reverse=True)),
        generations=tuple(
            sorted(map(_generation, table.tables("generation")), key=lambda table: table.below)
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
        avoided=tuple(_parse_avoided(part) for part in table.tables("avoid-python")),
        doubts={tag: _texts(table.table("doubt").table(tag)) for tag in table.table("doubt")},
        triton={system: _triton(table.table("triton").table(system)) for system in table.table("triton")},
    )


_KEYS = frozenset(
    {"schema", "compiled", "index", "driver-floor", "driver-paired", "generation", "capabilities"}
    | {"kernel-rule", "no-wheels", "from-source", "brings", "names", "release"}
    | {"avoid-python", "doubt", "triton"}
)
_RELEASE_KEYS = frozenset(
    {
        "version",
        "date",
        "requires-python",
        "pythons",
        "preferred-pythons",
        "glibc",
        "macos",
        "default",
        "package-index",
    }
    | {"download-mib", "longest-path", "breaks", "note", "cudnn", "nccl", "companion", "backend"}
)
_BACKEND_KEYS = frozenset(
    {"tag", "kind", "cuda", "driver-floor", "codes", "gfx", "local", "platforms", "pythons"}
    | {"family", "certainty", "source", "note"}
)
_COMPANION_KEYS = frozenset({"name", "version", "backends", "missing", "pythons", "source", "note"})


class _Parts(NamedTuple):
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
        preferred_pythons=_parse_preferred(table.table("preferred-pythons")),
        glibc=_version(table, "glibc"),
        macos=MacFloor(installs=_version(macos, "installs"), mps=_version(macos, "mps")),
        defaults=_texts(table.table("default")),
        package_index=_texts(table.table("package-index")),
        download_mib={key: table.table("download-mib").get(key, int) for key in table.table("download-mib")},
        longest_path=table.maybe("longest-path", int),
        backends=tuple(_backend(item, parts) for item in table.tables("backend")),
        companions={item.name: item for item in map(_companion, table.tables("companion"))},
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
        raise table.wrong("tag", f"`{tag}` cannot name a backend")
    return tag


def _needs(table: Table, parts: _Parts) -> Needs:
    match table.one_of("kind", ("cuda", "rocm", "xpu", "cpu")):
        case "cuda":
            version = _version(table, "cuda")
            floor = table.get("driver-floor", str)
            if floor not in parts.floors:
                raise table.wrong("driver-floor", f"`{floor}` is not described", nearest(floor, parts.floors))
            rule = next((rule for rule in parts.rules if rule.below is None or version < rule.below), None)
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


def _parse_preferred(table: Table) -> Mapping[str, tuple[str, ...]]:
    return {platform: table.strings(platform) for platform in table}


def _parse_avoided(table: Table) -> AvoidedPython:
    table.only({"name", "python", "torch", "package", "package-version", "install", "why", "source"})
    return AvoidedPython(
        python=_range(table, "python"),
        torch=_range(table, "torch") if "torch" in table else SpecifierSet(),
        package=table.maybe("package", str),
        package_version=_range(table, "package-version") if "package-version" in table else SpecifierSet(),
        installs=table.maybe("install", bool, default=True),
        why=table.get("why", str),
    )


def _range(table: Table, key: str) -> SpecifierSet:
    text = table.get(key, str)
    try:
        return SpecifierSet(text, prereleases=True)
    except ValueError:
        raise table.wrong(key, f"`{text}` is not a range of versions") from None


def _triton(table: Table) -> str:
    table.only({"package", "source"})
    return table.get("package", str)


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
        systems = [item for item in by_system if item != "source"]
        yield DriverFloor(name=name, by_system={system: _version(by_system, system) for system in systems})


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
        _capability(table, code): frozenset(_capability(table, string) for string in table.strings(code))
        for code in table
    }


def _by_platform(table: Table) -> Mapping[str, tuple[Capability, ...]]:
    return {key: tuple(_capability(table, string) for string in table.strings(key)) for key in table}


def _capability(table: Table, text: str) -> Capability:
    capability = Capability.parse(text)
    if capability is None:
        raise InputError(f"{table.source}: `{text}` is not a compute capability such as 8.9")
    return capability


def _version(table: Table, key: str) -> WrittenVersion:
    text = table.get(key, str)
    version = WrittenVersion.read(text)
    if version is None:
        raise table.wrong(key, f"`{text}` is not a version")
    return version


def _texts(table: Table) -> Mapping[str, str]:
    return {key: table.get(key, str) for key in table}
