"""The catalogue as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchenv.catalogue.builds import Backend, Cpu, Cuda, Rocm, Xpu
from torchenv.catalogue.releases import Catalogue, Release


def describe_catalogue(releases: Sequence[Release]) -> str:
    """Describe each release and its builds, the default of each vendor marked with a star."""
    return "\n".join(line for release in releases for line in _release_lines(release))


def encode_catalogue(catalogue: Catalogue, releases: Sequence[Release]) -> dict[str, Any]:
    """Return the releases as JSON can hold them."""
    return {
        "schema": "torchenv.catalogue/1",
        "compiled": catalogue.compiled,
        "index": catalogue.index_root,
        "releases": [_release_document(release) for release in releases],
    }


def _release_lines(release: Release) -> Iterator[str]:
    yield f"torch {release.version} ({release.date}), Python {', '.join(release.pythons)}"
    companions = ", ".join(
        f"{companion.name} {companion.version}" for companion in release.companions.values()
    )
    yield f"  with {companions}; macOS {release.macos.installs}, MPS from {release.macos.mps}"
    for backend in release.backends:
        star = "*" if release.defaults.get(backend.vendor) == backend.tag else " "
        where = ", ".join(sorted(backend.platforms))
        yield f"  {star} {backend.tag:9} {where}: {_needs(backend)} [{backend.certainty}]"


def _needs(backend: Backend) -> str:
    match backend.needs:
        case Cuda(floor=floor, codes=codes):
            driver = ", ".join(f"{system} {version}" for system, version in floor.by_system.items())
            capabilities = "; ".join(f"{name} {' '.join(map(str, known))}" for name, known in codes.items())
            return f"driver {driver}; code for {capabilities}"
        case Rocm(gfx=gfx):
            return " ".join(sorted(gfx))
        case Xpu():
            return "Intel GPUs of the documentation"
        case Cpu():
            return "no device"


def _release_document(release: Release) -> dict[str, Any]:
    return {
        "version": str(release.version),
        "date": release.date,
        "requires-python": str(release.requires_python),
        "pythons": list(release.pythons),
        "macos": {"installs": str(release.macos.installs), "mps": str(release.macos.mps)},
        "default": dict(release.defaults),
        "package-index": dict(release.package_index),
        "companions": {companion.name: str(companion.version) for companion in release.companions.values()},
        "breaks": list(release.breaks),
        "backends": [
            {
                "tag": backend.tag,
                "platforms": sorted(backend.platforms),
                "needs": _needs(backend),
                "certainty": backend.certainty,
                "source": backend.source,
            }
            for backend in release.backends
        ],
    }
