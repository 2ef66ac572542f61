"""The decision for a kind of machine that is not at hand, and which of the locked ones a host is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchenv.catalogue.releases import Catalogue
from torchenv.errors import InputError
from torchenv.host.model import Amd, AmdDevice, Capability, Host, Status
from torchenv.lockfile.lockset import LockedTarget
from torchenv.plan.choice import resolve
from torchenv.plan.values import NOTHING_ASKED, IndexFacts, Outcome, Plan, Question, Wish
from torchenv.profile.model import Profile, Target
from torchenv.system.addresses import TorchIndex
from torchenv.system.documents import nearest
from torchenv.system.values import frozen

# The package index's own build is what the rules take where PyTorch's index is not to be had.
_PACKAGE_INDEX = IndexFacts(unreachable=True)


def wish_of(profile: Profile, *, torch_index: TorchIndex | None) -> Wish:
    """Return what a profile wishes for where no option was given; `torch_index` is a mirror."""
    return Wish(
        version=profile.torch.version,
        packages=profile.torch.packages,
        python=profile.python.version,
        free_threaded=profile.python.free_threaded,
        backends=profile.backend.only,
        prefer=profile.backend.prefer,
        devices=profile.backend.devices,
        accept_cpu=profile.backend.accept_cpu,
        distributed=profile.checkpoints.distributed,
        torch_index=torch_index,
    )


def plan_target(
    target: Target,
    profile: Profile,
    catalogue: Catalogue,
    *,
    packages: tuple[str, ...],
    torch_index: TorchIndex | None,
) -> Plan:
    """Decide for a machine made up from the words of a target; raises `InputError` for an unknown word.

    `packages` are the companions that are asked for.
    """
    wish = replace(
        wish_of(profile, torch_index=torch_index),
        version=target.torch or profile.torch.version,
        packages=packages,
        python=target.python,
        free_threaded=target.python.endswith("t"),
        backends=(target.backend,) if target.backend else profile.backend.only,
        capability=Capability.parse(target.capability) if target.capability else None,
    )
    return resolve(
        Question(
            host=make_up_host(target, catalogue),
            wish=wish,
            catalogue=catalogue,
            indexes=_PACKAGE_INDEX if target.index == "packages" else NOTHING_ASKED,
        )
    )


def make_up_host(target: Target, catalogue: Catalogue) -> Host:
    """Make up a machine of this kind that is as new as it needs to be."""
    builds = (backend for release in catalogue.releases for backend in release.backends)
    known = {name for backend in builds for name in backend.platforms} | catalogue.no_wheels.keys()
    if target.platform not in known:
        hint = nearest(target.platform, known) or f"use one of {', '.join(sorted(known))}"
        raise InputError(f"target `{target.name}`: `{target.platform}` is not a platform", hint=hint)
    system, _, machine = target.platform.partition("-")
    amd = Amd()
    if target.capability and target.capability.startswith("gfx"):
        card = AmdDevice(index=0, name=f"a GPU of target {target.capability}", gfx=target.capability)
        amd = Amd(status=Status.FOUND, devices=(card,))
    return Host(system=system, machine=machine, amd=amd)


def explain_unsupported(plan: Plan) -> str | None:
    """Explain why no release has a wheel for a platform; None where that is not what stands in the way."""
    if plan.outcome is not Outcome.BLOCKED:
        return None
    unsupported = [rejection for rejection in plan.rejected if rejection.code == "platform-unsupported"]
    return unsupported[0].message if unsupported and len(unsupported) == len(plan.rejected) else None


@frozen
class Fit:
    """What a locked target would be on a host: `plan` has a build where it fits."""

    target: LockedTarget
    plan: Plan

    @property
    def fits(self) -> bool:
        """Whether the host can use exactly what was locked."""
        return self.plan.build is not None and self.plan.build.backend.tag == self.target.backend

    @property
    def is_made_for_it(self) -> bool:
        """Whether what was locked is for the devices of the host, or for none where it has none.

        The package index's build is a GPU's on Linux; a CPU runs it, and carries gigabytes for nothing.
        """
        build = self.plan.build
        return build is not None and (
            build.backend.vendor == "cpu" or any(device.served for device in self.plan.devices)
        )

    @property
    def why_not(self) -> str:
        """Why the host does not take it, in terms of what was locked."""
        if self.fits:
            return "is for a device, and this host has none"
        own = (rejection for rejection in self.plan.rejected if rejection.backend == self.target.backend)
        if said := next((rejection.message for rejection in own), None):
            return said
        return self.plan.why[0] if self.plan.why else "does not fit this host"


def fits(
    targets: Sequence[LockedTarget],
    ask: Question,
    *,
    torch_index: TorchIndex | None = None,
    by_hand: bool = False,
) -> tuple[Fit, ...]:
    """Decide for each target of the host's platform whether this host can use exactly what was locked.

    `ask` carries the wish of the profile, in which version, backend and Python give way to the target's;
    `by_hand` says that a person named the target.
    """
    return tuple(
        Fit(target, resolve(_question(target, ask, torch_index, by_hand=by_hand)))
        for target in targets
        if target.torch is not None and target.platform == ask.host.platform
    )


def best(found: Sequence[Fit], ask: Question) -> Fit | None:
    """Take the one that serves this host best: the newest release, then its backends as the rules order them.

    A build for devices that are not here serves nobody here, and the package index's comes after one that is
    made for what is here.
    """
    proven = [fit for fit in found if fit.fits and fit.plan.build and not fit.plan.build.unproven]
    here = {python.minor for python in ask.host.pythons}

    def rank(fit: Fit) -> tuple[object, ...]:
        build = fit.plan.build
        assert build is not None
        default = build.release.defaults.get(build.backend.vendor) == build.backend.tag
        order = [backend.tag for backend in build.release.backends].index(build.backend.tag)
        from_torch = fit.target.index == "torch"
        return (
            fit.is_made_for_it,
            build.release.version,
            default,
            -order,
            from_torch,
            fit.target.python in here,
            fit.target.name,
        )

    return max(proven, key=rank, default=None)


def _question(
    target: LockedTarget, ask: Question, torch_index: TorchIndex | None, *, by_hand: bool
) -> Question:
    assert target.torch is not None
    assert target.backend is not None
    wish = replace(
        ask.wish,
        version=target.torch.partition("+")[0],
        python=target.python,
        free_threaded=target.python.endswith("t"),
        # Of the package index's builds there is one a platform, which a CPU runs too.
        backends=(target.backend,) if target.index == "torch" else (),
        by_hand=by_hand,
        fallback=False,
        torch_index=torch_index,
    )
    indexes = NOTHING_ASKED if target.index == "torch" else _PACKAGE_INDEX
    return replace(ask, wish=wish, indexes=indexes)
