"""Why an environment does not work, whoever made it: every finding with its cause and its cure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchenv.actions.causes.devices import find_label_lies
from torchenv.actions.causes.gather import drop_repeats, find_causes
from torchenv.actions.causes.machine import MachineFacts
from torchenv.actions.causes.texts import explain_end, find_known_texts
from torchenv.actions.inside import SCRIPT
from torchenv.catalogue.releases import Catalogue
from torchenv.environment.findings import EnvironmentFinding
from torchenv.environment.inspect import Installation, describe, distributions
from torchenv.host.model import Host
from torchenv.plan.devices import devices_of, is_integrated
from torchenv.system.process import Command, Completed, Runner
from torchenv.system.values import frozen

# Seconds for one import of torch and a multiplication, on a disk that nothing has warmed.
LIMIT = 180.0

# What the user's own Python would heed, though torchenv keeps it from all others that it starts.
_HEEDED = ("PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "LD_LIBRARY_PATH", "LD_PRELOAD")


@frozen(kw_only=True)
class Diagnosis:
    """What was found in an environment; `devices` are those on which its torch computed."""

    installation: Installation
    findings: tuple[EnvironmentFinding, ...]
    torch: str | None = None
    devices: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def diagnose(
    path: Path,
    host: Host,
    catalogue: Catalogue,
    environ: Mapping[str, str],
    run: Runner,
    *,
    machine: MachineFacts | None = None,
) -> Diagnosis:
    """Look at an environment and around it, and import its torch in a child as the user's shell would.

    Raises `InputError` where no environment is at `path`.
    """
    installation = describe(path)
    installed = distributions(installation)
    causes = find_causes(installation, installed, host, catalogue, environ, machine=machine)
    report: Mapping[str, Any] = {}
    inside: tuple[EnvironmentFinding, ...] = ()
    if installation.torch is not None and all(item.code != "interpreter-gone" for item in causes.wrong):
        completed = _import_torch(installation, environ, run)
        report = read_report(completed)
        inside = tuple(_of_import(installation, completed, report))
        if not inside and not causes.devices:
            inside = tuple(_of_devices(installation, host, report))
    torch = report.get("torch") or {}
    return Diagnosis(
        installation=installation,
        findings=drop_repeats((*causes.wrong, *inside, *causes.around, *causes.devices, *causes.packages)),
        torch=str(torch["version"]) if torch else installation.torch,
        devices=tuple(_name(device) for device in report.get("devices", ()) if device["computes"]),
    )


def read_report(completed: Completed) -> Mapping[str, Any]:
    """Read what the script inside wrote on its last line; nothing where it did not come that far."""
    last = completed.out.strip().rpartition("\n")[2]
    try:
        report = json.loads(last)
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


def _import_torch(installation: Installation, environ: Mapping[str, str], run: Runner) -> Completed:
    python = str(installation.interpreter or installation.path)
    # Not isolated as elsewhere: what leads this Python astray is what is looked for.
    command = Command(
        (python, "-B", str(SCRIPT), json.dumps({"imports": []})),
        cwd=installation.path,
        env={name: environ[name] for name in _HEEDED if name in environ},
    )
    return run(command, timeout=LIMIT)


def _of_import(
    installation: Installation, completed: Completed, report: Mapping[str, Any]
) -> Iterator[EnvironmentFinding]:
    path = str(installation.path)
    error = report.get("torch_error")
    failures = (device.get("error") for device in report.get("devices", ()))
    printed = "\n".join(filter(None, [error, *failures, completed.err]))
    known = tuple(find_known_texts(printed, path))
    yield from known
    if (ended := explain_end(completed, LIMIT, path)) is not None:
        yield ended
    elif error and not known:
        yield EnvironmentFinding("import-fails", path, f"torch does not import: {error}", "torchenv verify")
    elif not report:
        message = f"its Python did not answer: {completed.reason()}"
        yield EnvironmentFinding("interpreter-fails", path, message, "torchenv create")
    if torch := report.get("torch"):
        yield from _of_torch(installation, torch)


def _of_torch(installation: Installation, torch: Mapping[str, Any]) -> Iterator[EnvironmentFinding]:
    for lie in find_label_lies(torch):
        cure = f"torchenv create --like {installation.path}"
        yield EnvironmentFinding("wrong-label", str(installation.path), lie, cure)
    file = Path(str(torch["file"]))
    if not any(file.is_relative_to(site) for site in installation.site_packages):
        message = "torch is imported from there, outside this environment"
        yield EnvironmentFinding("shadowed", str(file), message, "unset PYTHONPATH PYTHONHOME")


def _of_devices(
    installation: Installation, host: Host, report: Mapping[str, Any]
) -> Iterator[EnvironmentFinding]:
    path = str(installation.path)
    for device in report.get("devices", ()):
        if not device["computes"]:
            why = device.get("error") or "the result differs from the CPU's"
            message = f"{_name(device)} does not compute: {why}"
            yield EnvironmentFinding("device-fails", path, message, "torchenv smoke")
    torch = report.get("torch") or {}
    vendor = "nvidia" if torch.get("cuda") else "amd" if torch.get("hip") else None
    if vendor is None or report.get("devices"):
        return
    usable = (device for device in devices_of(vendor, host) if device.visible and not is_integrated(device))
    if names := ", ".join(device.name for device in usable):
        message = f"torch sees no device, but this machine has {names}"
        yield EnvironmentFinding("device-unseen", path, message, "torchenv probe")


def _name(device: Mapping[str, Any]) -> str:
    return str(device.get("name") or device["device"])
