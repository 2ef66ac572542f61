"""Find the locked target that a machine is."""

from __future__ import annotations

from torchenv.errors import NothingSuits
from torchenv.lockfile.lockset import LockSet
from torchenv.plan.targets import Fit, best, fits
from torchenv.plan.values import Question


def choose_target(locked: LockSet, ask: Question, named: str | None, *, torch_index: str | None) -> Fit:
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
        names = ", ".join(f"{each.name} ({each.platform})" for each in locked.targets)
        because = next((each.unsupported for each in locked.targets if each.platform == platform), None)
        why = because or ask.catalogue.no_wheels.get(platform)
        raise NothingSuits(
            f"no target for {platform}; targets are {names}",
            hint=why or f"add a [[target]] for {platform} and run `torchenv lock`",
        )
    reasons = "; ".join(f"{fit.target.name}: {_why(fit)}" for fit in found)
    hint = "add a target for this machine: `torchenv probe -o here.json`, `torchenv lock --host here.json`"
    raise NothingSuits(f"no target suits this host: {reasons}", hint=hint)


def _find_named(locked: LockSet, ask: Question, named: str, torch_index: str | None) -> Fit:
    target = locked.target(named)
    if target.torch is None:
        raise NothingSuits(f"target {named} has no lock: {target.unsupported}")
    if target.platform != ask.host.platform:
        raise NothingSuits(
            f"target {named} is for {target.platform}, and this machine is {ask.host.platform}",
            hint="`torchenv sync` without a name takes the target that suits it",
        )
    (fit,) = fits((target,), ask, torch_index=torch_index, by_hand=True)
    if not fit.fits:
        raise NothingSuits(f"target {named} does not fit this machine: {_why(fit)}", hint=fit.plan.hint)
    return fit


def _why(fit: Fit) -> str:
    if fit.fits:
        return "is for a device, and none was seen here"
    return fit.plan.why[0] if fit.plan.why else "does not fit this machine"
