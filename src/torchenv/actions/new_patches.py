"""Take a new patch release on known backends: as the one before, with what the index has of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from email.parser import HeaderParser
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from torchenv.actions.catalogue import CatalogueDifference
from torchenv.errors import ToolFailed
from torchenv.index.http import Missing
from torchenv.index.pages import Fetch, ListedFile, ProjectPage, project
from torchenv.system.addresses import TorchIndex

# What is measured from the files of a release, and was not measured of this one.
_MEASURED = frozenset({"cudnn", "nccl"})


def describe_new_patches(
    document: Mapping[str, Any],
    differences: Iterable[CatalogueDifference],
    index: TorchIndex,
    fetch: Fetch,
    *,
    today: str,
) -> list[dict[str, Any]]:
    """Describe as entries of a catalogue the new patch releases that have a known line and known backends.

    `document` is the whole catalogue as it is written. A companion is taken where the metadata of its wheel
    asks for exactly this torch. Raises `ToolFailed` where the index cannot be reached.
    """
    return list(_describe(document, differences, index, fetch, today))


def _describe(
    document: Mapping[str, Any],
    differences: Iterable[CatalogueDifference],
    index: TorchIndex,
    fetch: Fetch,
    today: str,
) -> Iterator[dict[str, Any]]:
    for difference in differences:
        base = _find_base(document, difference)
        if base is None:
            continue
        backends = [
            {**backend, "certainty": "inferred", "source": f"the index has it; as torch {base['version']}"}
            for backend in base.get("backend", [])
            if backend.get("local") in difference.labels
        ]
        if not backends:
            continue
        tags = {backend["tag"] for backend in backends}
        kept = {key: value for key, value in base.items() if key not in _MEASURED}
        places = [place for tag in sorted(tags) if (place := index.at(tag))]
        companions = [
            {**companion, "version": str(version)}
            for companion in base.get("companion", [])
            if (version := _find_companion(companion, difference.torch, places, fetch)) is not None
        ]
        yield {
            **kept,
            "version": str(difference.torch),
            "date": today,
            "note": f"written by `torchenv catalogue update`: as torch {base['version']}, not yet measured",
            "default": {vendor: tag for vendor, tag in base.get("default", {}).items() if tag in tags},
            "backend": backends,
            "companion": companions,
        }


def _find_base(document: Mapping[str, Any], difference: CatalogueDifference) -> Mapping[str, Any] | None:
    """Return the newest known release of the same line that is older."""
    if difference.code != "release-new":
        return None
    line = difference.torch.release[:2]
    known = [
        release
        for release in document.get("release", [])
        if Version(release["version"]).release[:2] == line and Version(release["version"]) < difference.torch
    ]
    return max(known, key=lambda release: Version(release["version"]), default=None)


def _find_companion(
    companion: Mapping[str, Any], torch: Version, places: list[str], fetch: Fetch
) -> Version | None:
    """Return the version of a companion whose wheel asks for this torch; None where none is known to."""
    for place in places:
        page = project(place, companion["name"], fetch)
        if page is None:
            continue
        oldest = Version(companion["version"])
        for version in sorted({Version(found.public) for found in page.versions}, reverse=True):
            if version < oldest:
                break
            if _asks_for(page, version, torch, fetch):
                return version
    return None


def _asks_for(page: ProjectPage, version: Version, torch: Version, fetch: Fetch) -> bool:
    file = _first_file(page, version)
    if file is None:
        return False
    try:
        text = fetch(f"{file.url}.metadata")
    except ToolFailed:
        return False
    if isinstance(text, Missing):
        return False
    for line in HeaderParser().parsestr(text).get_all("Requires-Dist", []):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.name == "torch":
            pins = [one for one in requirement.specifier if one.operator == "=="]
            return bool(pins) and requirement.specifier.contains(torch, prereleases=True)
    return False


def _first_file(page: ProjectPage, version: Version) -> ListedFile | None:
    wheel = next(iter(page.of(version)), None)
    return page.file(wheel.filename) if wheel else None
