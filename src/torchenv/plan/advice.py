"""What a careful colleague would say about taking the step."""

from __future__ import annotations

from packaging.version import Version

from torchenv.plan.values import Advice, Build, Outcome, Question

# The catalogue's word, among what a release breaks, for checkpoints that older releases cannot read.
ONE_WAY = "dcp-metadata"


def advise(ask: Question, outcome: Outcome, build: Build | None, why: tuple[str, ...]) -> Advice:
    """Weigh a decision against what is in use: upgrade, upgrade at a checkpoint boundary, or stay."""
    if outcome is not Outcome.AS_REQUESTED or build is None:
        return Advice("stay", why)
    active = ask.host.active
    new = f"torch {build.release.version} ({build.backend.tag})"
    if active is None or active.torch is None:
        return Advice("upgrade", (f"{new} suits this machine, and nothing is in use that could be lost",))
    if active.torch.base_version == build.release.version.base_version:
        return Advice("stay", (f"torch {active.torch} is in use already",))
    if ask.wish.distributed and _closed_a_door(active.torch, build.release.version, ask):
        reason = f"distributed checkpoints saved by {build.release.version} cannot be read by {active.torch}"
        return Advice("upgrade-at-checkpoint-boundary", (reason, "start a new line of checkpoints first"))
    return Advice("upgrade", (f"{new} suits this machine; {active.torch} is kept beside it",))


def _closed_a_door(older: Version, newer: Version, ask: Question) -> bool:
    """Say whether a release on the way made distributed checkpoints that earlier ones cannot read."""
    steps = (each for each in ask.catalogue.releases if older < each.version <= newer)
    return any(ONE_WAY in each.breaks for each in steps)
