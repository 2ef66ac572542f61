"""Find the locked target that a machine is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from torchenv.errors import NothingSuits
from torchenv.host.model import Host
from torchenv.lockfile.lockset import LockSet
from torchenv.plan.targets import Fit, best, fits
from torchenv.plan.values import Question
from torchenv.system.addresses import TorchIndex
from torchenv.system.values import frozen


@frozen
class NodeTarget:
    """The target that a machine would take; without one `refusal` says why."""

    host: str
    fit: Fit | None
    refusal: NothingSuits | None = None


def choose_target(
    locked: LockSet, ask: Question, named: str | None, *, torch_index: TorchIndex | None
) -> Fit:
    """Return the target for a host: the one that was named, if it fits, else the best that does.

    `ask` carries the host and the wish of the profile. Raises `NothingSuits` with the reasons.
    """
    if named is not None:
        return _find_named(locked, ask, named, torch_index)
    found = fits(locked.targets, ask, torch_index=torch_index)
    if fit := best(found, ask):
        return fit
    platform = ask.host.platform
    if not found:
        names = ", ".join(f"{target.name} ({target.platform})" for target in locked.targets)
        because = next((target.unsupported for target in locked.targets if target.platform == platform), None)
        why = because or ask.catalogue.no_wheels.get(platform)
        raise NothingSuits(
            f"no target for {platform}; targets are {names}",
            hint=why or f"add a [[target]] for {platform} and run `torchenv lock`",
        )
    reasons = "; ".join(f"{fit.target.name}: {fit.why_not}" for fit in found)
    raise NothingSuits(f"no target suits this host: {reasons}", hint=_hint_for(found))


def choose_for_hosts(
    locked: LockSet,
    ask: Question,
    hosts: Mapping[str, Host],
    named: str | None,
    *,
    torch_index: TorchIndex | None,
) -> tuple[NodeTarget, ...]:
    """Return the target that each of several machines would take, in the order in which they are given."""
    found = []
    for name, host in hosts.items():
        try:
            fit = choose_target(locked, replace(ask, host=host), named, torch_index=torch_index)
        except NothingSuits as refusal:
            found.append(NodeTarget(name, None, refusal))
        else:
            found.append(NodeTarget(name, fit))
    return tuple(found)


def _find_named(locked: LockSet, ask: Question, named: str, torch_index: TorchIndex | None) -> Fit:
    target = locked.target(named)
    if target.torch is None:
        raise NothingSuits(f"target `{named}` has no lock: {target.unsupported}")
    if target.platform != ask.host.platform:
        raise NothingSuits(
            f"target `{named}` is for {target.platform}, and this host is {ask.host.platform}",
            hint="run `torchenv sync` without a name to take the target that suits this host",
        )
    (fit,) = fits((target,), ask, torch_index=torch_index, by_hand=True)
    if not fit.fits:
        hint = _for_sync(fit.plan.hint) or "run `torchenv sync` to take the target that suits this host"
        raise NothingSuits(f"target `{named}` does not fit this host: {fit.why_not}", hint=hint)
    return fit


# What a person knows and a machine does not say; a target by its name vouches for it.
_UNKNOWN = frozenset({"capability-unknown", "driver-unknown"})


def _hint_for(found: tuple[Fit, ...]) -> str:
    for fit in found:
        if any(rejection.code in _UNKNOWN for rejection in fit.plan.rejected):
            return f"run `torchenv sync {fit.target.name}` if you know that it suits"
    said = next((hint for fit in found if (hint := _for_sync(fit.plan.hint))), None)
    return said or (
        "add a target for this host: `torchenv probe -o here.json`, then `torchenv lock --host here.json`"
    )


def _for_sync(hint: str | None) -> str | None:
    """Return a hint of the choice, unless it names an option that `sync` does not have."""
    return hint if hint and not re.search(r"--\w|torchenv (plan|create)", hint) else None
