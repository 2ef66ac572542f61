"""torchenv itself as files that install without a network: its own wheel, and what it needs."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torchenv
from torchenv.errors import ToolFailed
from torchenv.installers import LockRequest
from torchenv.profile.packaged import PROFILES
from torchenv.system.looking import find_paths
from torchenv.system.process import Runner
from torchenv.system.values import frozen

# A member of a zip has a time; the same torchenv is always the same bytes.
_TIME = (2026, 1, 1, 0, 0, 0)


@frozen
class Needed:
    """What torchenv needs to run: its requirements, and the versions of them that it runs with here."""

    requirements: tuple[str, ...]
    versions: tuple[str, ...]

    def request(self, python: str, platform: str, package_index: str | None) -> LockRequest:
        """Return the request of a lock of it for a Python and a platform."""
        return LockRequest(
            requirements=(),
            packages=self.requirements,
            constraints=self.versions,
            package_index=package_index,
            python=python,
            platform=platform,
        )


def list_needed() -> Needed:
    """Return what torchenv needs; raises `ToolFailed` where it was not installed as a package."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    own = _own()
    requirements = [Requirement(text) for text in own.requires or ()]
    asked = [item for item in requirements if item.marker is None or "extra" not in str(item.marker)]
    found: dict[str, str] = {}
    waiting = [item.name for item in asked]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            # For another platform than this one.
            continue
        found[name] = distribution.version
        waiting += [Requirement(text).name for text in distribution.requires or () if "extra ==" not in text]
    versions = tuple(f"{name}=={version}" for name, version in sorted(found.items()))
    return Needed(tuple(map(str, asked)), versions)


def write_own_wheel(directory: Path) -> Path:
    """Write the wheel of this torchenv, as it runs here, into a directory; returns its path."""
    own = _own()
    stem = f"torchenv-{own.version}"
    info = f"{stem}.dist-info"
    members = dict(_list_files())
    members[f"{info}/METADATA"] = (own.read_text("METADATA") or "").encode()
    members[f"{info}/entry_points.txt"] = (own.read_text("entry_points.txt") or "").encode()
    for name in ("torchenv", "torchenv.cmd"):
        launcher = f"launcher{'.cmd' if name.endswith('.cmd') else '.sh'}"
        members[f"{stem}.data/scripts/{name}"] = members[f"torchenv/{launcher}"]
    tags = "Wheel-Version: 1.0\nGenerator: torchenv\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    members[f"{info}/WHEEL"] = tags.encode()
    lines = [f"{name},{_digest(content)},{len(content)}\n" for name, content in members.items()]
    members[f"{info}/RECORD"] = "".join([*lines, f"{info}/RECORD,,\n"]).encode()
    path = directory / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name, _TIME)
            member.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    return path


def fetch_python_to(run: Runner, program: Path, python: str, platform: str, directory: Path) -> Path:
    """Fetch an interpreter for a platform into a directory with uv; raises `ToolFailed`."""
    from torchenv.installers.uv import python_for_platform_command

    done = run(python_for_platform_command(program, python, platform, directory))
    found = [
        path for path in find_paths(directory, "cpython-*") if os.path.isdir(path) and not path.is_symlink()
    ]
    if done.code != 0 or not found:
        raise ToolFailed(
            f"could not fetch Python {python} for {platform}: {done.reason().removeprefix('cause: ')}",
            hint="name a mirror of the interpreters with UV_PYTHON_INSTALL_MIRROR",
        )
    return found[-1]


def _own() -> metadata.Distribution:
    try:
        return metadata.distribution("torchenv")
    except metadata.PackageNotFoundError:
        raise ToolFailed(
            "this torchenv is not installed as a package, and cannot be put into a bundle",
            hint="install it, such as with `uv tool install torchenv`, and run it from there",
        ) from None


def _list_files() -> Iterator[tuple[str, bytes]]:
    (package,) = map(Path, torchenv.__path__)
    files = [path for path in find_paths(package, "**/*") if os.path.isfile(path) and not _is_cache(path)]
    # In a checkout they lie elsewhere than in a wheel.
    outside = [] if PROFILES.is_relative_to(package) else find_paths(PROFILES, "*.toml")
    named = {f"torchenv/{path.relative_to(package).as_posix()}": path for path in files}
    named |= {f"torchenv/profiles/{path.name}": path for path in outside}
    for name, path in sorted(named.items()):
        yield name, path.read_bytes()


def _is_cache(path: Path) -> bool:
    return "__pycache__" in path.parts or re.search(r"\.py[co]$", path.name) is not None


def _digest(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"
