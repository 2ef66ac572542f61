"""Wheels of what is installed here, as an index would serve them."""

from __future__ import annotations

import hashlib
import io
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from tests.support.wheels import Wheel

from torchenv.installers.tools import list_needed

SCRIPTS = Path(sysconfig.get_path("scripts"))


@dataclass(frozen=True, kw_only=True)
class Repacked(Wheel):
    """A wheel of an installed package, with the files that its RECORD names."""

    @property
    def _installed(self) -> metadata.Distribution:
        return metadata.distribution(self.name)

    @property
    def metadata(self) -> bytes:
        return (self._installed.read_text("METADATA") or "").encode()

    @property
    def content(self) -> bytes:
        return repack(self.name)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@cache
def repack(name: str) -> bytes:
    """Return the bytes of a wheel of an installed package."""
    distribution = metadata.distribution(name)
    folders = (path.parts[0] for path in distribution.files or ())
    stem = next(folder for folder in folders if folder.endswith(".dist-info")).removesuffix(".dist-info")
    file = io.BytesIO()
    lines = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for path in distribution.files or ():
            if "__pycache__" in path.parts or path.name in ("RECORD", "INSTALLER", "REQUESTED"):
                continue
            found = Path(str(path.locate()))
            is_script = found.resolve().is_relative_to(SCRIPTS.resolve())
            if is_script and found.read_bytes()[:2] == b"#!":
                # Made anew from its entry point.
                continue
            place = f"{stem}.data/scripts/{found.name}" if is_script else path.as_posix()
            archive.writestr(zipfile.ZipInfo(place, (2026, 1, 1, 0, 0, 0)), found.read_bytes())
            lines.append(f"{place},,\n")
        record = f"{stem}.dist-info/RECORD"
        archive.writestr(zipfile.ZipInfo(record, (2026, 1, 1, 0, 0, 0)), "".join([*lines, f"{record},,\n"]))
    return file.getvalue()


def repack_tools() -> tuple[Wheel, ...]:
    """Return the wheels of all that torchenv needs, for the machine that runs the tests."""
    found = []
    for line in list_needed().versions:
        name, _, version = line.partition("==")
        is_pure = "Root-Is-Purelib: true" in (metadata.distribution(name).read_text("WHEEL") or "")
        minor = f"cp3{sys.version_info[1]}"
        tag = "py3-none-any" if is_pure else f"{minor}-{minor}-manylinux_2_17_x86_64"
        found.append(Repacked(name=metadata.distribution(name).name, version=version, tag=tag))
    return tuple(found)
