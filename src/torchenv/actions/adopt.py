"""Record an environment that was made elsewhere, which from then on is only read."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from packaging.version import Version

from torchenv.actions.checkpoints import judge_for
from torchenv.actions.ports import Ports
from torchenv.catalogue.releases import Catalogue
from torchenv.environment.base_python import BasePython
from torchenv.environment.findings import find_wrong
from torchenv.environment.fingerprint import Fingerprint, differences, fingerprint
from torchenv.environment.identity import identity
from torchenv.environment.inspect import Installation, describe
from torchenv.environment.verify import digest_of_base
from torchenv.errors import InputError
from torchenv.host.model import Host
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment


@frozen
class Fallback:
    """The active environment before a change, and how every file of it was."""

    environment: Environment
    installation: Installation
    before: Fingerprint

    def find_changes(self) -> tuple[str, ...]:
        """Look again, and name what others have changed since."""
        return tuple(map(str, differences(self.before, fingerprint(self.installation))))


@frozen
class Adopted:
    """The environment that was to be recorded; it `is_new` where it was not on the record."""

    environment: Environment
    is_new: bool


def adopt(path: Path, catalogue: Catalogue, ports: Ports) -> Adopted:
    """Record the environment at `path`; raises `InputError` where there is none or it has no torch."""
    installation = describe(path)
    if installation.torch is None:
        hint = "name one that has torch, or make one with `torchenv create`"
        found = [site for site in installation.site_packages if os.path.isfile(site / "torch" / "version.py")]
        said = "has a torch whose version cannot be read" if found else "has no torch"
        raise InputError(f"environment `{path}` {said}", hint=hint)
    for finding in find_wrong(installation):
        ports.say(f"warning: {finding.advice}")
    before = fingerprint(installation)
    with ports.store.hold(f"torchenv adopt {path}"):
        manifest = ports.store.clear_unfinished()
        known = {recorded.number for recorded in manifest.environments}
        manifest, fallback = record_adoption(manifest, installation, catalogue, ports, before)
        ports.store.write(manifest)
        ports.store.write_fingerprint(fallback.environment.number, fallback.before.text)
        ports.store.remake_current(manifest)
        return Adopted(fallback.environment, fallback.environment.number not in known)


@frozen
class Active:
    """An environment that is active, as a record or by the host's word, and how every file of it is."""

    installation: Installation
    files: Fingerprint


def look_at_active(manifest: Manifest, host: Host) -> Active | None:
    """Look at the active environment; None where none holds a torch.

    What was switched to through torchenv is active; before any switch it is the shell's, else the project's.
    """
    recorded = manifest.active
    if recorded is not None and recorded.on_disk and os.path.isdir(Path(recorded.path)):
        return _look_at(Path(recorded.path))
    path = _find_with_torch(host)
    return None if path is None else _look_at(path)


def _find_with_torch(host: Host) -> Path | None:
    for seen in sorted(host.environments, key=lambda seen: not seen.active):
        if seen.torch is not None and os.path.isdir(Path(seen.path)):
            return Path(seen.path)
    return None


def _look_at(path: Path) -> Active:
    installation = describe(path)
    return Active(installation, fingerprint(installation))


def in_use(
    manifest: Manifest, host: Host, catalogue: Catalogue, ports: Ports, seen: Active | None
) -> tuple[Manifest, Fallback | None]:
    """Return the active environment as the fallback, recording it if it is not; None where there is none.

    `seen` is what `look_at_active` found before the workspace was held; another switch may have come since.
    """
    recorded = manifest.active
    if recorded is not None and (seen is None or str(seen.installation.path) != recorded.path):
        seen = look_at_active(manifest, host)
    if seen is None:
        return manifest, None
    if recorded is not None and str(seen.installation.path) == recorded.path:
        return manifest, Fallback(recorded, seen.installation, seen.files)
    return record_adoption(manifest, seen.installation, catalogue, ports, seen.files)


def foresee_adoption(
    manifest: Manifest, host: Host, catalogue: Catalogue, at: datetime
) -> tuple[Manifest, Environment | None]:
    """Return the record as it will be with the shell's or the project's environment in it, and that one.

    None where something was switched to, or where no environment has a torch. Nothing is written.
    """
    if manifest.active is not None or (path := _find_with_torch(host)) is None:
        return manifest, None
    return _adopt_into(manifest, describe(path), catalogue, at, None)


def record_adoption(
    manifest: Manifest, installation: Installation, catalogue: Catalogue, ports: Ports, before: Fingerprint
) -> tuple[Manifest, Fallback]:
    """Put an environment into the record, with how every file of it is."""
    known = {recorded.number for recorded in manifest.environments}
    manifest, environment = _adopt_into(manifest, installation, catalogue, ports.now(), before.digest)
    if environment.number not in known:
        manifest = judge_for(environment, manifest, ports.store, system=ports.system, say=ports.say)
    return manifest, Fallback(environment, installation, before)


def _adopt_into(
    manifest: Manifest, installation: Installation, catalogue: Catalogue, at: datetime, digest: str | None
) -> tuple[Manifest, Environment]:
    torch = installation.torch
    backend = (installation.backend or "cpu") if torch else None
    python = installation.python or "unknown"
    minor = ".".join(python.split(".")[:2])
    name = f"{Version(torch).public}-{backend}-py{minor}" if torch else f"py{minor}"
    return manifest.adopt(
        name,
        path=installation.path,
        python=base_python(installation),
        at=at,
        torch=torch,
        backend=backend,
        fingerprint=digest,
        reads=catalogue.reads(Version(torch)) if torch else None,
        layout=installation.layout.value,
        identity=identity(installation.path),
    )


def base_python(installation: Installation) -> BasePython:
    """Describe the interpreter that an environment stands on, with the digest of its file."""
    version, base = installation.python or "unknown", installation.base
    return BasePython(version, str(base or ""), digest_of_base(base) if base else None)
