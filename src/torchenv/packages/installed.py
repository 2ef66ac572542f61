"""What an existing environment was asked for: its packages without torch's family, at their versions."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from torchenv.catalogue.releases import Catalogue
from torchenv.environment.inspect import Distribution, canonical
from torchenv.packages.values import CarriedPackages, CarriedRequirement, PackageNote, Wanted
from torchenv.system.values import frozen

# An environment is made with its own, or does without them.
TOOLS = frozenset({"pip", "setuptools", "wheel"})

Installed = Mapping[str, Distribution]


def of_environment(
    distributions: Iterable[Distribution], source: str, catalogue: Catalogue
) -> CarriedPackages:
    """Take what was asked for by name, and what nobody asked for and nothing requires.

    pip and uv mark what was asked for. conda does not, and an extra that was asked for leaves no mark: what
    is reached neither from the marked packages nor from torch is wanted too, by its topmost packages.
    Torch's family is asked of the plan instead, and what torch alone brings is left to torch.
    """
    installed = {canonical(distribution.name): distribution for distribution in distributions}
    family = [name for name in sorted(installed) if name in catalogue.family]
    of_torch = find_reached(family, installed)
    local = {name: path for name, version in installed.items() if (path := local_path(version)) is not None}
    passed_over = {*family, *TOOLS, *local}
    chosen = [
        name
        for name, version in installed.items()
        if _is_marked(version)
        and name not in passed_over
        and not (catalogue.is_brought_along(name) and name in of_torch)
    ]
    rest = installed.keys() - passed_over - of_torch - find_reached(chosen, installed)
    chosen += list_topmost({name for name in rest if not catalogue.is_brought_along(name)}, installed)
    return CarriedPackages(
        wanted=tuple(_make_wanted(name, installed[name], source) for name in sorted(chosen)),
        family=tuple(CarriedRequirement(name, source) for name in family if name != "torch"),
        notes=tuple(_by_hand(name, *local[name]) for name in sorted(local)),
    )


def list_required(distribution: Distribution, extras: frozenset[str] = frozenset()) -> list[Requirement]:
    """Return what a distribution requires, and what the extras add; malformed lines are passed over."""
    found = []
    for text in distribution.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        # Requires-Dist: rich>=13; extra == "pretty"
        named = set(re.findall(r'extra == "([^"]+)"', str(requirement.marker or "")))
        if not named or named & extras:
            found.append(requirement)
    return found


@frozen(kw_only=True)
class UnmetRequirement:
    """What an installed package requires and lacks; `found` is the other version that is there."""

    package: str
    name: str
    requirement: str
    found: str | None


def list_unmet(installed: Iterable[Distribution], python: str | None) -> tuple[UnmetRequirement, ...]:
    """Return every declared requirement that is missing or of another version, as `uv pip check` does.

    `python` is the environment's version, for markers; what an extra would add is asked of nobody.
    """
    packages = {canonical(package.name): package for package in installed}
    inside = {"extra": ""}
    if python is not None:
        inside |= {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    unmet = []
    for package in packages.values():
        for wanted in list_required(package):
            if wanted.marker is not None and not wanted.marker.evaluate(inside):
                continue
            found = packages.get(canonical(wanted.name))
            if found is not None and wanted.specifier.contains(found.version, prereleases=True):
                continue
            plain = f"{wanted.name}{wanted.specifier}"
            unmet.append(
                UnmetRequirement(
                    package=f"{package.name} {package.version}",
                    name=canonical(wanted.name),
                    requirement=plain,
                    found=found.version if found else None,
                )
            )
    return tuple(unmet)


def local_path(distribution: Distribution) -> tuple[str, bool] | None:
    """Return the path on this machine that it came from, and whether it is editable there."""
    direct = _direct_url(distribution)
    # {"url": "file:///home/u/project", "dir_info": {"editable": true}}
    url = direct.get("url", "")
    if not url.startswith("file:"):
        return None
    return unquote(urlsplit(url).path), bool(direct.get("dir_info", {}).get("editable"))


def _make_wanted(name: str, distribution: Distribution, source: str) -> Wanted:
    version, url = distribution.version, _portable_url(distribution)
    asks = (f"{name} @ {url}",) if url else version_asks(name, version)
    return Wanted(name=name, version=version, source=source, asks=asks)


def version_asks(name: str, version: str) -> tuple[str, ...]:
    """Ask for the same version first, then for a newer one, then for any."""
    # PEP 440 allows a local label, as in 1.0+site.3, after == alone.
    return f"{name}=={version}", f"{name}>={version.partition('+')[0]}", name


def _is_marked(distribution: Distribution) -> bool:
    # conda's packages keep the marks of the machine that they were made on.
    return distribution.requested and distribution.installer != "conda"


def find_reached(roots: Iterable[str], installed: Installed) -> set[str]:
    """Return the names of some packages and of all that they require, as far as they are installed."""
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(root, frozenset[str]()) for root in roots]
    while todo:
        name, extras = todo.pop()
        if (name, extras) in seen or name not in installed:
            continue
        seen.add((name, extras))
        required = list_required(installed[name], extras)
        todo += [(canonical(item.name), frozenset(item.extras)) for item in required]
    return {name for name, _ in seen}


def list_topmost(names: set[str], installed: Installed) -> list[str]:
    """Return the fewest of `names` from which all the others are reached."""
    found: list[str] = []
    while names:
        below = {other for name in names for other in find_reached([name], installed) - {name}}
        # Packages that require each other have no topmost one; any of them reaches the others.
        heads = sorted(names - below) or sorted(names)[:1]
        found += heads
        names = names - find_reached(heads, installed)
    return found


def _portable_url(distribution: Distribution) -> str | None:
    """Return the repository or archive that it came from, if other machines reach it too."""
    direct = _direct_url(distribution)
    # {"url": "https://git.example/a.git", "vcs_info": {"vcs": "git", "commit_id": "7921be1…"}}
    # {"url": "https://files.example/a-1-py3-none-any.whl", "archive_info": {"hashes": {"sha256": "…"}}}
    url = direct.get("url", "")
    if not url or url.startswith("file:"):
        return None
    folder = f"#subdirectory={direct['subdirectory']}" if direct.get("subdirectory") else ""
    if vcs := direct.get("vcs_info"):
        return f"{vcs.get('vcs', 'git')}+{url}@{vcs['commit_id']}{folder}" if "commit_id" in vcs else None
    return f"{url}{folder}"


def _direct_url(distribution: Distribution) -> Mapping[str, Any]:
    if distribution.direct_url is None or distribution.installer == "conda":
        return {}
    try:
        direct = json.loads(distribution.direct_url)
    except ValueError:
        return {}
    return direct if isinstance(direct, dict) else {}


def _by_hand(name: str, path: str, editable: bool) -> PackageNote:  # noqa: FBT001
    what = f"-e {shlex.quote(path)}" if editable else shlex.quote(path)
    said = f"{name} comes from {path}: install it afterwards with `uv pip install --no-deps {what}`"
    return PackageNote("local", said)
