"""Which packages of an environment do not fit each other, by what their metadata declare."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from torchenv.actions.causes.devices import find_release
from torchenv.catalogue.releases import Catalogue
from torchenv.environment.findings import EnvironmentFinding
from torchenv.environment.inspect import Distribution, Installation, Layout, canonical
from torchenv.packages.installed import UnmetRequirement, list_unmet
from torchenv.system.looking import find_paths


def find_package_causes(
    installation: Installation, installed: Sequence[Distribution], catalogue: Catalogue
) -> Iterator[EnvironmentFinding]:
    """Yield two torches, labels and companions that do not fit, and what is missing or of another version."""
    if installation.torch is None:
        message = "has no torch"
        yield EnvironmentFinding("no-torch", str(installation.path), message, "torchenv create")
        return
    yield from _two_torches(installation)
    yield from _labels(installation, installed)
    yield from (finding for _, finding in find_companions(installation, installed, catalogue))
    # A companion for another torch has been named by the environment's own files.
    unmet = (wanted for wanted in list_unmet(installed, installation.python) if wanted.name != "torch")
    yield from (_describe_unmet(wanted, installation) for wanted in unmet)
    yield from _conda_and_pip(installation, installed)


def _two_torches(installation: Installation) -> Iterator[EnvironmentFinding]:
    places = [
        site / "torch" for site in installation.site_packages if os.path.isfile(site / "torch/version.py")
    ]
    for hidden in places[1:]:
        message = f"is a second torch, hidden by {places[0]}"
        cure = f"torchenv create --like {installation.path}"
        yield EnvironmentFinding("two-torches", str(hidden), message, cure)


def _labels(installation: Installation, installed: Sequence[Distribution]) -> Iterator[EnvironmentFinding]:
    """Compare the label inside torch with that of its metadata, and of its companions' metadata."""
    label = installation.backend
    for package in installed:
        if package.name.lower() not in {"torch", "torchvision", "torchaudio"}:
            continue
        other = package.version.partition("+")[2]
        if other and label and other != label:
            code = "wrong-label" if package.name == "torch" else "other-build"
            message = f"{package.name} {package.version} is installed beside torch {installation.torch}"
            cure = f"torchenv create --like {installation.path}"
            yield EnvironmentFinding(code, str(package.info), message, cure)


def find_companions(
    installation: Installation, installed: Sequence[Distribution], catalogue: Catalogue
) -> Iterator[tuple[str, EnvironmentFinding]]:
    """Yield each companion that belongs to another torch, by its canonical name."""
    release = find_release(installation.torch, catalogue) if installation.torch else None
    if release is None:
        return
    for package in installed:
        name = canonical(package.name)
        companion = release.companions.get(name)
        if companion is None or _public(package.version) == _public(str(companion.version)):
            continue
        message = (
            f"{package.name} {package.version} is installed beside torch {release.version},"
            f" whose companion is {companion.version}"
        )
        cure = f"torchenv create {release.version} --like {installation.path}"
        yield name, EnvironmentFinding("other-build", str(package.info), message, cure)


def _describe_unmet(wanted: UnmetRequirement, installation: Installation) -> EnvironmentFinding:
    found = f"{wanted.found} is installed" if wanted.found else "it is not installed"
    message = f"{wanted.package} requires {wanted.requirement}, and {found}"
    code = "requirement-unmet" if wanted.found else "requirement-missing"
    if wanted.name in {"triton", "triton-rocm", "triton-xpu"}:
        code = "triton-too-old" if wanted.found else "triton-missing"
    cure = f"uv pip install --python {installation.path} '{wanted.requirement}'"
    return EnvironmentFinding(code, str(installation.path), message, cure)


def _conda_and_pip(
    installation: Installation, installed: Sequence[Distribution]
) -> Iterator[EnvironmentFinding]:
    if installation.layout is not Layout.CONDA:
        return
    by_pip = {canonical(package.name): package for package in installed if package.installer != "conda"}
    for name, record in _list_conda_records(installation.path):
        # conda calls torch pytorch.
        package = by_pip.get("torch" if name == "pytorch" else name)
        if package is not None:
            over = f"{package.installer or 'pip'} installed {package.version} over it"
            message = f"conda installed {record.stem}, and {over}"
            cure = f"torchenv create --like {installation.path}"
            yield EnvironmentFinding("conda-pip-mixed", str(record), message, cure)


def _list_conda_records(path: Path) -> Iterator[tuple[str, Path]]:
    # conda-meta/numpy-2.3.0-py312h6cf2f7f_0.json
    for record in find_paths(path / "conda-meta", "*.json"):
        if match := re.fullmatch(r"(.+)-[^-]+-[^-]+", record.stem):
            yield match[1], record


def _public(version: str) -> str:
    try:
        return Version(version).public
    except InvalidVersion:
        return version
