"""The machine to a `Host`: look at everything once, then understand what was seen.

The second half is given evidence alone, so the evidence of another machine does as well.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from torchenv.host.model import Host
from torchenv.host.probe import amd, environments, intel, nvidia, pci, pythons, system
from torchenv.host.probe.sources import Look, SeenEvidence, Sources
from torchenv.host.redact import mask_evidence

__all__ = ["Sources", "probe", "reparse"]


def probe(sources: Sources, *, project: Path | None, now: datetime, named: Path | None = None) -> Host:
    """Describe what this machine has; `project` is the directory whose `.venv` is looked at.

    `named` is an interpreter that nothing else may lead to.
    Never fails for what is missing or broken: that is part of the answer.
    """
    look = Look(sources)
    environments.look(look, project)
    programs = [item.look(look) for item in (system, pci, nvidia, amd, intel)]
    programs.append(pythons.look(look, named))
    look.run({source: command for program in programs for source, command in program.items()})
    again = [python.look_again(look) for python in (system, nvidia, pythons)]
    look.run({source: command for item in again for source, command in item.items()})
    environments.look_again(look)
    captured = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return _understand(SeenEvidence(mask_evidence(look.gathered.values())), captured)


def reparse(host: Host) -> Host:
    """Understand a host's evidence anew, as this torchenv does, without looking at any machine."""
    seen = SeenEvidence(host.evidence)
    if system.PYTHON not in seen:
        # Evidence that was put together by hand: the document itself says what system it is of.
        seen = SeenEvidence((system.describe_system(host.system, host.machine), *host.evidence))
    return _understand(seen, host.captured_at)


def _understand(seen: SeenEvidence, captured_at: str | None) -> Host:
    of_system, about_system = system.understand(seen)
    of_nvidia, about_nvidia = nvidia.understand(seen, wsl=of_system.wsl)
    of_amd, about_amd = amd.understand(seen, of_nvidia, wsl=of_system.wsl)
    of_intel, about_intel = intel.understand(seen, (of_nvidia, of_amd), wsl=of_system.wsl)
    of_pythons, about_pythons = pythons.understand(seen)
    of_environments, about_environments = environments.understand(seen)
    return Host(
        captured_at=captured_at,
        system=of_system.system,
        machine=of_system.machine,
        libc=of_system.libc,
        macos=of_system.macos,
        wsl=of_system.wsl,
        container=of_system.container,
        pythons=of_pythons,
        nvidia=of_nvidia,
        amd=of_amd,
        intel=of_intel,
        apple=of_system.apple,
        environments=of_environments,
        evidence=tuple(seen.values()),
        problems=(
            *about_system,
            *(replace(problem, vendor="nvidia") for problem in about_nvidia),
            *(replace(problem, vendor="amd") for problem in about_amd),
            *(replace(problem, vendor="intel") for problem in about_intel),
            *about_pythons,
            *about_environments,
        ),
    )
