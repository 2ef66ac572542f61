"""All causes together, as doctor, status and smoke ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torchenv.actions.causes.devices import find_device_causes
from torchenv.actions.causes.machine import MachineFacts, find_machine_causes, read_machine
from torchenv.actions.causes.packages import find_package_causes
from torchenv.catalogue.releases import Catalogue
from torchenv.environment.findings import EnvironmentFinding, find_wrong
from torchenv.environment.inspect import Distribution, Installation
from torchenv.host.model import Host
from torchenv.system.values import frozen


@frozen(kw_only=True)
class Causes:
    """What the files, the machine, the devices and the packages show to be wrong; nothing was started."""

    wrong: tuple[EnvironmentFinding, ...]
    around: tuple[EnvironmentFinding, ...]
    devices: tuple[EnvironmentFinding, ...]
    packages: tuple[EnvironmentFinding, ...]

    @property
    def all(self) -> tuple[EnvironmentFinding, ...]:
        """Every finding once, the nearest to the environment first."""
        return drop_repeats((*self.wrong, *self.around, *self.devices, *self.packages))


def find_causes(
    installation: Installation,
    installed: Sequence[Distribution],
    host: Host,
    catalogue: Catalogue,
    environ: Mapping[str, str],
    *,
    machine: MachineFacts | None = None,
) -> Causes:
    """Look for all that keeps the torch of an environment from working, without starting its Python."""
    facts = machine or read_machine(installation, environ)
    return Causes(
        wrong=find_wrong(installation),
        around=tuple(find_machine_causes(installation, facts, host, environ)),
        devices=tuple(find_device_causes(installation, host, catalogue, environ)),
        packages=tuple(find_package_causes(installation, installed, catalogue)),
    )


def drop_repeats(findings: Iterable[EnvironmentFinding]) -> tuple[EnvironmentFinding, ...]:
    """Keep the first of what is told twice: a text and the facts behind it have one code."""
    kept: dict[tuple[str, str], EnvironmentFinding] = {}
    for finding in findings:
        kept.setdefault((finding.code, finding.path), finding)
    return tuple(kept.values())
